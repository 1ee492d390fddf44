"""Find code by name: in a table, in installed packages, or as `package.module:name` or `file.py:name`.

Wherever vicinal accepts a name, it also accepts the object: `name_of` gives an object a name under which `find` returns
it, so that recipes, records and other processes only need names.

Names in tables and names from installed packages (by their entry points) need no permission. The code of a
`module:name` is imported only if the `Trust` that is passed to `find` allows it. Code that takes names from the user
creates a Trust (`Trust.typed`, `Trust.of`) and passes it on: with a `Recipe`, a `Run` or an `Index`, and with the task
of another process. Names that come from a recipe, a folder, a journal or a listing of files are not trusted by
themselves.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import marshal
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, final

from vicinal._util.warnings import warn_caller
from vicinal.errors import InputError, UnknownName

__all__ = [
    "GROUPS",
    "NO_TRUST",
    "Trust",
    "code_hash",
    "find",
    "handed_over",
    "is_code",
    "known_name",
    "name_of",
    "plugins",
    "short_name",
    "works_elsewhere",
]

# Kinds of code, as errors call them, and the group of entry points by which packages register theirs.
GROUPS = {
    "loss": "vicinal.objectives",
    "miner": "vicinal.miners",
    "backbone": "vicinal.backbones",
    "dataset": "vicinal.readers",
    "score": "vicinal.metrics",
    "chapter": "vicinal.chapters",
}
CODE = re.compile(r"(?P<source>.+\.py|[A-Za-z_][\w.]*):(?P<name>[A-Za-z_<][\w.<>]*)")

RECIPE = ".toml"  # suffix of recipe files, whatever else is in the name
INSTANCE = ".<instance>"  # suffix of the name of an object, after the name of its class

# Objects that the user passed, by their generated names. This is process-wide state, since such an object may exist
# nowhere else: a lambda has no module that could be imported. An entry gives no permission to import anything.
_handed_over: dict[str, Any] = {}


def is_code(name: str) -> bool:
    """Return whether a name has the form `package.module:name` or `file.py:name`; names of recipe files never do.

    Example:
        >>> [is_code(name) for name in ("my_losses:hinge", "lab/mine.py:hinge", "triplet", "losses/mine.py:f.toml")]
        [True, True, False, False]
    """
    return CODE.fullmatch(name) is not None and not name.lower().endswith(RECIPE)


def short_name(name: str) -> str:
    """Return the short form of a name for tables and figures.

    Example:
        >>> short_name("my_losses:hinge"), short_name("triplet")
        ('hinge', 'triplet')
    """
    return name.rpartition(":")[2].removesuffix(INSTANCE) if is_code(name) else name


@final
@dataclass(frozen=True)
class Trust:
    """Modules and files whose code may be imported; immutable, passed as an argument, and never stored globally.

    Attributes:
        sources: Sorted names such as "my_module", "my_package" (with all its modules) or "lab/mine.py", as in the
            argument `allow_code` of public functions.

    Example:
        >>> trust = Trust.of(["my_package"]) | Trust.typed(["triplet+lab/mine.py:my_miner"])
        >>> trust.sources, trust.allows("my_package.losses"), trust.allows("os")
        (('lab/mine.py', 'my_package'), True, False)
    """

    sources: tuple[str, ...] = ()

    @classmethod
    def none(cls) -> Trust:
        """Trust nothing beyond tables and installed packages."""
        return cls()

    @classmethod
    def of(cls, sources: Iterable[str]) -> Trust:
        """Trust the sources of `--allow-code` or `allow_code=`: modules, packages, files or a full "my_module:name"."""
        names = [sources] if isinstance(sources, str) else sources
        return cls(tuple(sorted({_source_of(name) if is_code(name) else name for name in names})))

    @classmethod
    def typed(cls, values: Iterable[Any]) -> Trust:
        """Trust the code named in values that the user typed on the command line or in a Python call.

        Args:
            values: Values, of which only strings can name code: "my_module:my_loss", or
                "my_module:my_loss+mine.py:my_miner". A `Path` is a file and never the name of code. Never pass names
                that come from a file or a listing of files.
        """
        parts = (part.strip() for value in values if isinstance(value, str) for part in value.split("+"))
        return cls.of(part for part in parts if is_code(part))

    def allows(self, source: str) -> bool:
        """Return whether the code of a module or file may be imported, even if it was imported before."""
        if source.endswith(".py"):
            path = os.path.abspath(source)
            return any(other.endswith(".py") and os.path.abspath(other) == path for other in self.sources)
        return any(source == other or source.startswith(f"{other}.") for other in self.sources)

    def __or__(self, other: Trust) -> Trust:
        return Trust.of((*self.sources, *other.sources))


NO_TRUST = Trust.none()  # the default of every Trust argument


def handed_over(names: Iterable[str]) -> Trust:
    """Trust the code of those names that refer to objects passed by the user in this process, for another process."""
    return Trust.of(name for name in names if name in _handed_over)


def known_name(kind: str, name: str, table: Mapping[str, Any]) -> str:
    """Return the name if it exists, or has the form of code; no code is run.

    Raises:
        UnknownName: If the name does not exist; suggests the nearest one.
    """
    if name in table or is_code(name) or name in _entry_points(kind):
        return name
    raise UnknownName(kind, name, [*table, *_entry_points(kind)])


def find(kind: str, name: str, table: Mapping[str, Any], trust: Trust) -> Any:
    """Return the object of a name: from the table, passed by the user, from an installed package, or imported.

    Args:
        kind: Key of `GROUPS`.
        name: Name as users type it.
        table: Built-in objects by name.
        trust: Code that may be imported.

    Raises:
        UnknownName: If the name does not exist.
        InputError: If the code is not trusted, or cannot be imported.
    """
    known_name(kind, name, table)
    if name in table:
        return table[name]
    if name in _handed_over:
        return _handed_over[name]
    if not is_code(name):
        with _explained(kind, name):
            return _entry_points(kind)[name].load()
    source, _, inside = name.rpartition(":")
    if not trust.allows(source):
        raise InputError(
            f"The {kind} {name!r} is code that is not part of vicinal. Code named in a recipe, folder or record is "
            f"not imported unless you allow it: --allow-code {source} (in Python allow_code={[source]!r})."
        )
    with _explained(kind, name):
        return functools.reduce(getattr, inside.split("."), _imported(source))


def name_of(kind: str, thing: Any, table: Mapping[str, Any]) -> str:
    """Return the name of an object, and register the object under it; a name is returned unchanged.

    Example:
        >>> name_of("loss", len, {"length": len}), name_of("loss", "triplet", {})
        ('length', 'triplet')
    """
    if isinstance(thing, str):
        return thing
    for name, other in table.items():
        if other is thing:
            return name
    if not callable(thing):
        raise InputError(f"A {kind} is a name or a function; got {thing!r}.")
    inner = _definition(thing)
    module, inside = str(inner.__module__), str(inner.__qualname__)
    if inner is type(thing):
        inside += INSTANCE
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if module == "__main__" and script is not None and script.endswith(".py") and os.path.isfile(script):
        module = Path(os.path.relpath(script)).as_posix()
    name = f"{module}:{inside.rpartition('<locals>.')[2]}"
    _handed_over[name] = thing
    return name


def works_elsewhere(name: str) -> bool:
    """Return whether another process can import the same object by its name."""
    if not is_code(name) or name not in _handed_over:
        return True
    source, _, inside = name.rpartition(":")
    if source.endswith(".py"):  # the running script, which another process imports as a module
        return getattr(sys.modules["__main__"], inside, None) is _handed_over[name]
    # In this process the module is already loaded, from anywhere; another process searches the path.
    if PathFinder.find_spec(source.partition(".")[0], [*sys.path, os.getcwd()]) is None:
        return False
    try:
        return functools.reduce(getattr, inside.split("."), _imported(source)) is _handed_over[name]
    except (ImportError, AttributeError):
        return False


def code_hash(kind: str, name: str, table: Mapping[str, Any], trust: Trust) -> str | None:
    """Return the SHA-256 of the file of custom code, or of its source if there is no file; None for built-in code.

    For an object that cannot be imported by name, its content is included: bound arguments, closure values, weights.
    """
    if name in table:
        return None
    thing = find(kind, name, table, trust)
    total = hashlib.sha256(_source(inspect.unwrap(_definition(thing))))
    if not works_elsewhere(name):
        total.update(repr(_contents(thing)).encode())
        weights = {} if isinstance(thing, type) or not hasattr(thing, "state_dict") else thing.state_dict()
        for key, tensor in weights.items():
            total.update(key.encode() + tensor.detach().cpu().numpy().tobytes())
    return total.hexdigest()


def plugins(kind: str) -> dict[str, Any]:
    """Load all objects of a kind from installed packages, by name; broken ones are left out with a warning."""
    loaded = {}
    for name in sorted(_entry_points(kind)):
        try:
            loaded[name] = find(kind, name, {}, NO_TRUST)
        except InputError as error:
            warn_caller(f"{error} It is ignored.")
    return loaded


def _definition(thing: Any) -> Any:
    """Return the function or class whose source defines an object."""
    inner = thing.func if isinstance(thing, functools.partial) else thing
    return inner if hasattr(inner, "__qualname__") else type(inner)


def _entry_points(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUPS[kind])}


def _source_of(name: str) -> str:
    """Return the module or file in the name of code."""
    return name.rpartition(":")[0]


def _imported(source: str) -> ModuleType:
    """Import a module (from the current folder if it is not installed) or a file."""
    if not source.endswith(".py"):
        here = os.getcwd()  # on the path of `python -m vicinal`, but not of the command `vicinal`
        if here in sys.path:
            return importlib.import_module(source)
        sys.path.append(here)
        try:
            return importlib.import_module(source)
        finally:
            sys.path.remove(here)
    path = Path(source).resolve()
    name = f"vicinal_own_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"{source} does not exist")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _explained(kind: str, name: str) -> Iterator[None]:
    """Turn import errors into an InputError that says why the code cannot be imported."""
    source, _, inside = name.rpartition(":")
    try:
        yield
    except AttributeError:
        raise InputError(f"The {kind} {name!r} cannot be found: {source} has no {inside}.") from None
    except Exception as error:
        raise InputError(f"The {kind} {name!r} cannot be imported: {type(error).__name__}: {error}.") from error


def _source(function: Any) -> bytes:
    file = getattr(sys.modules.get(function.__module__), "__file__", None)
    if file is not None and os.path.isfile(file):
        return Path(file).read_bytes()
    try:
        return inspect.getsource(function).encode()
    except (OSError, TypeError):  # typed into an interpreter, or created by `exec`
        return marshal.dumps(function.__code__) if hasattr(function, "__code__") else repr(function).encode()


def _contents(thing: Any) -> list[Any]:
    """Return the content of an object beyond its source, as far as it can be written down reproducibly."""
    if isinstance(thing, functools.partial):
        return [*thing.args, *sorted(thing.keywords.items()), *_contents(thing.func)]
    function = inspect.unwrap(thing)
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    cells += [
        *(getattr(function, "__defaults__", None) or ()),
        *(getattr(function, "__kwdefaults__", None) or {}).values(),
    ]
    return [value if isinstance(value, str | int | float | bool | None) else type(value).__name__ for value in cells]
