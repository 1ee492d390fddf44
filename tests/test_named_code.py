"""Names of code: tables, entry points of a real dist-info, `module:name`, `file.py:name`, objects; who may run it."""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from vicinal._util import code as named_code
from vicinal._util.code import (
    GROUPS,
    NO_TRUST,
    Trust,
    code_hash,
    find,
    handed_over,
    is_code,
    known_name,
    name_of,
    plugins,
    short_name,
    works_elsewhere,
)
from vicinal.errors import InputError, UnknownName

TABLE = {"ours": len}
SOURCE = "RAN = []\nRAN.append(1)\n\n\ndef hinge(matrix, positive, negative):\n    return matrix.sum()\n"


@pytest.fixture(autouse=True)
def _nothing_was_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_code, "_handed_over", {})


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, under a name that no other test has imported."""
    name = f"own_code_{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:8]}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    yield name
    sys.modules.pop(name, None)


def installed(folder: Path, name: str, *lines: str) -> None:
    """Put a package with entry points into a folder, as pip leaves it."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def test_a_table_comes_first_and_needs_no_permission() -> None:
    assert find("loss", "ours", TABLE, NO_TRUST) is len
    assert code_hash("loss", "ours", TABLE, NO_TRUST) is None


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'ours'"):
        find("loss", "ourz", TABLE, NO_TRUST)


def test_code_runs_only_when_it_is_trusted(module: str) -> None:
    name = f"{module}:hinge"
    assert known_name("loss", name, TABLE) == name  # which runs nothing
    with pytest.raises(InputError, match=f"--allow-code {module} "):
        find("loss", name, TABLE, NO_TRUST)
    assert module not in sys.modules
    assert find("loss", name, TABLE, Trust.of([module])).__name__ == "hinge"
    with pytest.raises(InputError, match=f"--allow-code {module} "):  # no permission is left behind
        find("loss", name, TABLE, Trust.none())


@pytest.mark.parametrize("text", ["{}:hinge", "triplet+{}:hinge", "triplet + {}:hinge"])
def test_what_the_user_typed_is_trusted(module: str, text: str) -> None:
    trust = Trust.typed([text.format(module), None, 3, ["x"], Path("other.py:f")])
    assert trust.sources == (module,)
    assert find("loss", f"{module}:hinge", TABLE, trust).__name__ == "hinge"


def test_trust_is_a_value() -> None:
    both = Trust.of(["b.py", "a"]) | Trust.of(["a:loss"])
    assert both == Trust.of(["a", "b.py"])
    assert both.sources == ("a", "b.py")
    assert Trust.of("a") == Trust.of(["a"])  # a single one that was forgotten to be a list
    assert pickle.loads(pickle.dumps(both)) == both  # noqa: S301 (as it goes to another process)
    with pytest.raises(FrozenInstanceError):
        both.sources = ("os",)  # type: ignore[misc]


def test_trust_in_a_package_is_trust_in_what_is_in_it_and_in_nothing_else() -> None:
    trust = Trust.of(["xml"])
    assert find("loss", "xml.dom:Node", TABLE, trust).__name__ == "Node"
    with pytest.raises(InputError, match="--allow-code xmlrpc"):
        find("loss", "xmlrpc:client", TABLE, trust)
    with pytest.raises(InputError, match="--allow-code os "):
        find("loss", "os:system", TABLE, trust)  # that it is imported already says nothing


def test_importing_leaves_the_search_path_as_it_was(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(os.getcwd())
    before = list(sys.path)
    find("loss", f"{module}:hinge", TABLE, Trust.of([module]))
    assert sys.path == before


@pytest.mark.parametrize("name", ["evil.py:f.toml", "losses/evil.py:f.toml", "triplet+evil.py:f.toml", "evil:f.TOML"])
def test_the_file_of_a_recipe_is_never_code(name: str) -> None:
    assert not is_code(name)
    assert Trust.typed([name]) == NO_TRUST


def test_a_file_is_code_too_and_is_loaded_once(module: str) -> None:
    trust = Trust.of([f"{module}.py", "absent.py"])
    first, again = (find("loss", f"{path}:hinge", TABLE, trust) for path in (f"./{module}.py", f"{module}.py"))
    assert first is again
    with pytest.raises(InputError, match="does not exist"):
        find("loss", "absent.py:hinge", TABLE, trust)


def test_what_cannot_be_imported_says_why(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text("1 / 0\n")
    trust = Trust.of([module, f"{module}.py", "nowhere_at_all", "math"])
    for name in (f"{module}:hinge", f"{module}.py:hinge"):
        with pytest.raises(InputError, match="cannot be imported: ZeroDivisionError"):
            find("loss", name, TABLE, trust)
    with pytest.raises(InputError, match="No module named 'nowhere_at_all'"):
        find("loss", "nowhere_at_all:hinge", TABLE, trust)
    with pytest.raises(InputError, match="math has no hinge"):
        find("loss", "math:hinge", TABLE, trust)


def test_the_hash_is_that_of_the_file(module: str) -> None:
    digest = code_hash("loss", f"{module}:hinge", TABLE, Trust.of([module]))
    assert digest == hashlib.sha256(SOURCE.encode()).hexdigest()


def test_an_object_has_a_name_under_which_it_is_found_again() -> None:
    def local(matrix: Any) -> Any:
        return matrix

    name = name_of("loss", local, TABLE)
    assert is_code(name)
    assert short_name(name) == "local"
    assert find("loss", name, TABLE, NO_TRUST) is local
    assert handed_over([name, "triplet", "os:system"]) == Trust.of([name])  # for other processes
    assert not works_elsewhere(name)
    assert name_of("loss", len, TABLE) == "ours"
    with pytest.raises(InputError, match="A loss is a name or a function; got 3"):
        name_of("loss", 3, TABLE)


def test_what_another_process_can_import_is_known(module: str) -> None:
    function = find("loss", f"{module}:hinge", TABLE, Trust.of([module]))
    assert works_elsewhere(name_of("loss", function, TABLE))
    assert not works_elsewhere(name_of("loss", functools.partial(function, positive=1), TABLE))
    assert not works_elsewhere(name_of("loss", lambda matrix: matrix, TABLE))


def test_objects_that_differ_have_hashes_that_differ() -> None:
    def made(power: int) -> Any:
        return lambda matrix: matrix**power

    hashes = [code_hash("loss", name_of("loss", made(power), TABLE), TABLE, NO_TRUST) for power in (1, 2, 2)]
    assert hashes[0] != hashes[1] == hashes[2]
    bound = [functools.partial(find, margin=margin) for margin in (0.1, 0.2)]
    assert len({code_hash("loss", name_of("loss", each, TABLE), TABLE, NO_TRUST) for each in bound}) == 2


def test_code_without_a_file_has_a_hash() -> None:
    names: dict[str, Any] = {"__name__": "no_such_module"}
    exec("def one(m): return m\ndef two(m): return -m", names)
    hashes = [code_hash("loss", name_of("loss", names[name], TABLE), TABLE, NO_TRUST) for name in ("one", "two")]
    assert None not in hashes
    assert hashes[0] != hashes[1]


@pytest.mark.parametrize("kind", GROUPS)
def test_packages_bring_their_own_by_entry_points(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"brought_{kind}"
    (tmp_path / f"{name}.py").write_text("def thing():\n    return 'brought'\n")
    installed(tmp_path, name, f"[{GROUPS[kind]}]", f"{kind}_of_theirs = {name}:thing", "broken = no_such_module:thing")
    monkeypatch.syspath_prepend(tmp_path)
    assert known_name(kind, f"{kind}_of_theirs", TABLE)
    assert name not in sys.modules
    assert find(kind, f"{kind}_of_theirs", TABLE, NO_TRUST)() == "brought"
    assert code_hash(kind, f"{kind}_of_theirs", TABLE, NO_TRUST) is not None
    with pytest.raises(InputError, match="cannot be imported"):
        find(kind, "broken", TABLE, NO_TRUST)
    with pytest.raises(UnknownName, match=f"did you mean '{kind}_of_theirs'"):
        find(kind, f"{kind}_of_their", TABLE, NO_TRUST)
    with pytest.warns(UserWarning, match="'broken' cannot be imported.*It is ignored"):
        assert list(plugins(kind)) == [f"{kind}_of_theirs"]
