"""Names of code: those of a table, those that installed packages bring, and `package.module:name` or `file.py:name`.

Wherever vicinal takes a name, it takes the object, too: `name_of` gives an object a name under which `find` returns it
again, so that recipes, records and other processes need to hold names alone.

Names in tables and names that installed packages bring (by their entry points) need no permission. The code of a
`module:name` is imported only if a `Trust` that is passed to `find` allows it. Whoever takes names from the user makes
one (`Trust.typed`, `Trust.of`) and passes it on: with a `Recipe`, a `Run` or an `Index`, and with the task of another
process. Names that a recipe, a folder, a journal or a listing of files holds are in no Trust by themselves.
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
    "brought_along",
    "code_hash",
    "find",
    "handed_over",
    "is_code",
    "known_name",
    "name_of",
    "short_name",
    "works_elsewhere",
]

# What is named, as errors call it, and the group of entry points by which packages bring theirs along.
GROUPS = {
    "loss": "vicinal.objectives",
    "miner": "vicinal.miners",
    "backbone": "vicinal.backbones",
    "dataset": "vicinal.readers",
    "score": "vicinal.metrics",
    "chapter": "vicinal.chapters",
}
CODE = re.compile(r"(?P<source>.+\.py|[A-Za-z_][\w.]*):(?P<name>[A-Za-z_<][\w.<>]*)")

RECIPE = ".toml"  # ends the name of a recipe's file, whatever else is in the name
INSTANCE = ".<instance>"  # ends the name of an object whose class has the name before it

# Objects that the user handed over, by the names they got. This is state of the process, since such an object may exist
# nowhere else: a lambda has no module that could be imported. Being in it gives no permission to import anything.
_handed_over: dict[str, Any] = {}


def is_code(name: str) -> bool:
    """Whether a name has the form `package.module:name` or `file.py:name`; the name of a recipe's file never has.

    Example:
        >>> [is_code(name) for name in ("my_losses:hinge", "lab/mine.py:hinge", "triplet", "losses/mine.py:f.toml")]
        [True, True, False, False]
    """
    return CODE.fullmatch(name) is not None and not name.lower().endswith(RECIPE)


def short_name(name: str) -> str:
    """Return what tables and figures call it.

    Example:
        >>> short_name("my_losses:hinge"), short_name("triplet")
        ('hinge', 'triplet')
    """
    return name.rpartition(":")[2].removesuffix(INSTANCE) if is_code(name) else name


@final
@dataclass(frozen=True)
class Trust:
    """The modules and files whose code may be imported. It is immutable and passed along; no process remembers it.

    Attributes:
        sources: "my_module", "my_package" (with all modules in it) or "lab/mine.py", sorted. They are what public
            functions take as `allow_code`.

    Example:
        >>> trust = Trust.of(["my_package"]) | Trust.typed(["triplet+lab/mine.py:my_miner"])
        >>> trust.sources, trust.allows("my_package.losses"), trust.allows("os")
        (('lab/mine.py', 'my_package'), True, False)
    """

    sources: tuple[str, ...] = ()

    @classmethod
    def none(cls) -> Trust:
        """Trust in nothing: tables and installed packages are all there is."""
        return cls()

    @classmethod
    def of(cls, sources: Iterable[str]) -> Trust:
        """Trust in what `--allow-code` or `allow_code=` names: modules, packages, files or a whole "my_module:name"."""
        names = [sources] if isinstance(sources, str) else sources
        return cls(tuple(sorted({_source_of(name) if is_code(name) else name for name in names})))

    @classmethod
    def typed(cls, values: Iterable[Any]) -> Trust:
        """Trust in the code among values that the user typed on the command line or wrote into a Python call.

        Args:
            values: Of which only texts can name code: "my_module:my_loss", or "my_module:my_loss+mine.py:my_miner". A
                `Path` is a file, and never the name of code. Never pass names that a file or a listing of files holds.
        """
        parts = (part.strip() for value in values if isinstance(value, str) for part in value.split("+"))
        return cls.of(part for part in parts if is_code(part))

    def allows(self, source: str) -> bool:
        """Whether the code of a module or file may be imported; that it was imported before does not count."""
        if source.endswith(".py"):
            path = os.path.abspath(source)
            return any(other.endswith(".py") and os.path.abspath(other) == path for other in self.sources)
        return any(source == other or source.startswith(f"{other}.") for other in self.sources)

    def __or__(self, other: Trust) -> Trust:
        return Trust.of((*self.sources, *other.sources))


NO_TRUST = Trust.none()  # the default of every argument that takes one


def handed_over(names: Iterable[str]) -> Trust:
    """Trust in the code of those names that stand for objects handed over in this process, for another process."""
    return Trust.of(name for name in names if name in _handed_over)


def known_name(kind: str, name: str, table: Mapping[str, Any]) -> str:
    """Return a name that stands for something, or at least may: no code is run.

    Raises:
        UnknownName: With the nearest one that exists.
    """
    if name in table or is_code(name) or name in _brought(kind):
        return name
    raise UnknownName(kind, name, [*table, *_brought(kind)])


def find(kind: str, name: str, table: Mapping[str, Any], trust: Trust) -> Any:
    """Return what a name stands for: in the table, handed over, brought by a package, or importable.

    Args:
        kind: One of `GROUPS`.
        name: As people type it.
        table: The names of vicinal itself.
        trust: The code that may be imported.

    Raises:
        UnknownName: For a name that nothing has.
        InputError: For code that is not trusted, or that cannot be imported.
    """
    known_name(kind, name, table)
    if name in table:
        return table[name]
    if name in _handed_over:
        return _handed_over[name]
    if not is_code(name):
        with _explained(kind, name):
            return _brought(kind)[name].load()
    source, _, inside = name.rpartition(":")
    if not trust.allows(source):
        raise InputError(
            f"The {kind} {name!r} is code that does not come with vicinal. What a recipe, folder or record names is "
            f"not imported unless you allow it: --allow-code {source} (in Python allow_code={[source]!r})."
        )
    with _explained(kind, name):
        return functools.reduce(getattr, inside.split("."), _imported(source))


def name_of(kind: str, thing: Any, table: Mapping[str, Any]) -> str:
    """Return the name of an object, and remember it under that name; a name is returned as it is.

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
    """Whether another process finds the same under a name, by importing it."""
    if not is_code(name) or name not in _handed_over:
        return True
    source, _, inside = name.rpartition(":")
    if source.endswith(".py"):  # the script that is running, which another process imports as a module
        return getattr(sys.modules["__main__"], inside, None) is _handed_over[name]
    # Here the module is loaded already, from wherever that was: another process looks along the path.
    if PathFinder.find_spec(source.partition(".")[0], [*sys.path, os.getcwd()]) is None:
        return False
    try:
        return functools.reduce(getattr, inside.split("."), _imported(source)) is _handed_over[name]
    except (ImportError, AttributeError):
        return False


def code_hash(kind: str, name: str, table: Mapping[str, Any], trust: Trust) -> str | None:
    """Return the SHA-256 of the file that code is in, or of its own source where there is no file; None for ours.

    An object that was not imported by its name counts with what is in it: bound arguments, closed-over values, weights.
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


def brought_along(kind: str) -> dict[str, Any]:
    """Load all that installed packages bring of a kind, by name; what is broken is left out, with a warning."""
    loaded = {}
    for name in sorted(_brought(kind)):
        try:
            loaded[name] = find(kind, name, {}, NO_TRUST)
        except InputError as error:
            warn_caller(f"{error} It is left out.")
    return loaded


def _definition(thing: Any) -> Any:
    """Return the function or class that the source of an object is written down in."""
    inner = thing.func if isinstance(thing, functools.partial) else thing
    return inner if hasattr(inner, "__qualname__") else type(inner)


def _brought(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUPS[kind])}


def _source_of(name: str) -> str:
    """Return the module or file of a name of code."""
    return name.rpartition(":")[0]


def _imported(source: str) -> ModuleType:
    """Import a module, from the current folder where it is not installed; or a file."""
    if not source.endswith(".py"):
        here = os.getcwd()  # which `python -m vicinal` looks in, and the command `vicinal` does not
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
        raise ImportError(f"there is no file {source}")
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
    """Say in one sentence why code cannot be had."""
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
    except (OSError, TypeError):  # typed into an interpreter, or made by `exec`
        return marshal.dumps(function.__code__) if hasattr(function, "__code__") else repr(function).encode()


def _contents(thing: Any) -> list[Any]:
    """Return what an object holds beyond its source, as far as it can be written down the same way again."""
    if isinstance(thing, functools.partial):
        return [*thing.args, *sorted(thing.keywords.items()), *_contents(thing.func)]
    function = inspect.unwrap(thing)
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    cells += [
        *(getattr(function, "__defaults__", None) or ()),
        *(getattr(function, "__kwdefaults__", None) or {}).values(),
    ]
    return [value if isinstance(value, str | int | float | bool | None) else type(value).__name__ for value in cells]
