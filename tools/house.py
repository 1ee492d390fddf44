"""Count what keeps the package readable, and fail where a limit is passed: `python tools/house.py`.

Limits may only be tightened, except the number of files, which a new concept may raise by its own file.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vicinal"
VAGUE = {"found", "place", "told", "said", "kept", "known", "one", "at", "way"}
VAGUE_START = re.compile(r"^(Of|In|As|Who|What)\b")

# What is counted: (lowest allowed, highest allowed).
LIMITS: dict[str, tuple[float, float]] = {
    "files": (0, 331),
    "mean lines of a file": (160, 450),
    "modules at the root": (0, 12),
    "modules with one importer, in their own package": (0, 20),
    "import layers": (0, 12),
    "functions with more than 10 parameters outside cli/": (0, 2),
    "locals with a vague name": (0, 1),
    "descriptions of arguments that start with Of, In, As, Who or What": (0, 0),
}


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """Yield the modules of the package that a file imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in names else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def single_importers(trees: dict[Path, ast.Module]) -> list[str]:
    """Return the modules that exist for one other module of the same package; `__init__` files are not counted."""
    files = {module_name(path): path for path in trees}
    importers = defaultdict(set)
    for path, tree in trees.items():
        for module in imported(tree, set(files)):
            importers[module].add(path)
    return [
        name
        for name, path in files.items()
        if path.name != "__init__.py"
        and len(importers[name]) == 1
        and all(other.parent == path.parent and other.name != "__init__.py" for other in importers[name])
    ]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield all functions and methods of a file."""
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names of a function's parameters but `self`, `cls`, `*args` and `**kwargs`."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [each.arg for each in every if each.arg not in ("self", "cls")]


def vague_locals(tree: ast.AST) -> list[str]:
    """Return the vague names that functions of a file assign to, once per function."""
    names = []
    for function in functions(tree):
        own = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        names += sorted(own & VAGUE)
    return names


def vague_descriptions(tree: ast.AST) -> list[str]:
    """Return descriptions of arguments, attributes and options that do not start with a noun phrase."""
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = False
            for line in (ast.get_docstring(node) or "").splitlines():
                if re.fullmatch(r"[A-Z][a-z]+:", line.strip()):
                    inside = line.strip() in ("Args:", "Attributes:")
                entry = re.match(r" {4}\**\w+: (.*)", line)
                if inside and entry:
                    texts.append(entry[1])
        elif isinstance(node, ast.keyword) and node.arg == "help" and isinstance(node.value, ast.Constant):
            texts.append(str(node.value.value))
    return [text for text in texts if VAGUE_START.match(text)]


def layers() -> list[str]:
    """Return the import layers, top to bottom."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return settings["tool"]["importlinter"]["contracts"][0]["layers"]


def counts() -> dict[str, tuple[float, list[str]]]:
    """Return each count, with what was counted where a list helps."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    library = {path: tree for path, tree in trees.items() if path.parent != PACKAGE / "cli"}
    long = [
        f"{module_name(path)}.{function.name}"
        for path, tree in library.items()
        for function in functions(tree)
        if len(parameters(function)) > 10
    ]
    single = single_importers(trees)
    return {
        "files": (len(texts), []),
        "mean lines of a file": (sum(len(text.splitlines()) for text in texts.values()) / len(texts), []),
        "modules at the root": (len(list(PACKAGE.glob("*.py"))), []),
        "modules with one importer, in their own package": (len(single), single),
        "import layers": (len(layers()), []),
        "functions with more than 10 parameters outside cli/": (len(long), long),
        "locals with a vague name": (sum(len(vague_locals(tree)) for tree in trees.values()), []),
        "descriptions of arguments that start with Of, In, As, Who or What": (
            sum(len(vague_descriptions(tree)) for tree in trees.values()),
            [],
        ),
    }


def main() -> int:
    """Print all counts, and return 1 where one is outside its limits."""
    failed = False
    for name, (count, items) in counts().items():
        lowest, highest = LIMITS[name]
        wrong = not lowest <= count <= highest
        failed |= wrong
        limit = f"at least {lowest:g}" if lowest else f"at most {highest:g}"
        print(f"{'FAIL' if wrong else 'ok':4} {count:6.0f}  {name} ({limit})")
        if wrong or "--list" in sys.argv:
            print("".join(f"            {item}\n" for item in items), end="")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
