"""Check what the linters do not: facades, import cycles, private names, words. Exit status 1 when anything is found.

Facades: a module of another package, and a test of another package, imports `haru.PACKAGE` or `haru.PACKAGE.PART`,
nothing deeper. Cycles: no module imports itself by way of others, imports for types alone included. Private names:
`_name` of something that neither this module nor, through `self`, another one of ours defines belongs to a library.
Tests: no two modules have one name, since they are imported by it.
Cancellations: who awaits what he has cancelled does it by `haru.event_loop.cancelled`, which insists.
Words: none of tools/retired_words.txt is a name in the code or stands in the prose; docs/glossary.md says what is used
instead.
"""

from __future__ import annotations

import ast
import gc
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
WITH_FACADES = ("engine", "explain", "scheduler", "apiserver", "node", "cel")
TESTS_OF = {"dra": "engine", "golden": "engine", "growth": "scheduler"}
"""Folders of tests that are not named after the package which they test."""
DOCUMENTED = frozenset({"_asdict", "_current_frames", "_exit", "_fields", "_getframe", "_hash", "_make", "_replace"})
"""Names with an underscore that Python documents: of named tuples, of `os` and `sys`, of `collections.abc.Set`."""
HELD_BY_A_TEST = {
    "src/haru/cli/main.py": frozenset({"_SubParsersAction", "_actions"}),
    "src/haru/apiserver/request/protocol.py": frozenset({"_sslobj"}),
}
"""Private names that have no public one beside them: tests/test_library_contracts.py holds each."""
CODE = ("src", "tests", "benchmarks", "tools", "examples")
DEEP = re.compile(rf"\bharu\.({'|'.join(WITH_FACADES)})\.\w+\.\w")
"""What the text of every import that passes a facade by contains: only such files need to be parsed for it."""
AWAITED = re.compile(
    r"\.cancel\(\)\n\s+(await asyncio\.(wait|gather)\(|with (contextlib\.)?suppress\(asyncio\.Cancelled)"
)
"""The end of a task that was cancelled, awaited by hand."""
KINDS = (ast.Import, ast.ImportFrom, ast.Attribute, ast.Name, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def main() -> int:
    """Print every finding."""
    found = findings(ROOT)
    for text in found:
        print(text)
    print(f"structure: {len(modules_of(ROOT))} modules, {len(found)} findings")
    return 1 if found else 0


def findings(root: Path) -> list[str]:
    """List what breaks a rule in the repository at `root`, one line each."""
    of_modules = [*deep_imports(root), *cycles(import_graph(root)), *private_names(root)]
    return [*of_modules, *cancellations(root), *shared_names_of_tests(root), *retired_words(root)]


def modules_of(root: Path) -> dict[str, Path]:
    """List the modules of a repository by name."""
    return {name_of(path, root): path for path in sources_in(root / "src")}


def sources_in(folder: Path) -> list[Path]:
    """List the Python files of a folder that somebody wrote: generated ones are left out."""
    return [path for path in sorted(folder.rglob("*.py")) if not path.stem.endswith("_pb2")]


def name_of(path: Path, root: Path) -> str:
    """Name the module that a file is."""
    return ".".join(path.relative_to(root / "src").with_suffix("").parts).removesuffix(".__init__")


@lru_cache(maxsize=4096)
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """List the nodes of `KINDS` in a file's syntax tree; parsed once for all rules."""
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, KINDS))


def import_graph(root: Path) -> dict[str, set[str]]:
    """List which modules of ours each module imports."""
    modules = modules_of(root)
    return {name: set(imports_of(name, path, modules)) for name, path in modules.items()}


def imports_of(own: str, path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """The modules of ours that a file imports anywhere; a lazy facade imports what its stub names."""
    stub = path.with_suffix(".pyi")
    for source in (path, stub) if stub.exists() else (path,):
        for node in nodes_of(source.read_text()):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom):
                base = f"{own}.{node.module}" if node.level else node.module or ""
                names = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            yield from (name for name in names if name in modules and name != own)


def deep_imports(root: Path) -> Iterator[str]:
    """Imports that pass a facade by."""
    for folder in CODE:
        for path in sources_in(root / folder):
            parts = path.relative_to(root).parts
            inside = parts[2] if folder == "src" and len(parts) > 2 else parts[1] if folder == "tests" else ""
            own = TESTS_OF.get(inside, inside)
            text = path.read_text()
            for node in nodes_of(text) if DEEP.search(text) else ():
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names = [node.module]
                else:
                    continue
                for steps in (name.split(".") for name in names):
                    if len(steps) > 3 and steps[0] == "haru" and steps[1] in WITH_FACADES and steps[1] != own:
                        where = f"{path.relative_to(root)}:{node.lineno}"
                        yield f"{where}: {'.'.join(steps)} is inside of {'.'.join(steps[:3])}: import from there"


def cycles(graph: Mapping[str, set[str]]) -> Iterator[str]:
    """Modules that import each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> Iterator[list[str]]:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                yield from visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            ring = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(ring) > 1:
                yield ring

    for name in sorted(graph):
        if name not in index:
            for ring in visit(name):
                yield f"import cycle: {', '.join(sorted(ring))}"


def private_names(root: Path) -> Iterator[str]:
    """Private attributes and modules of libraries."""
    trees = {path: nodes_of(path.read_text()) for path in modules_of(root).values()}
    defined = {path: set(definitions(nodes)) for path, nodes in trees.items()}
    ours = set().union(*defined.values())
    for path, nodes in trees.items():
        where = path.relative_to(root).as_posix()
        allowed = DOCUMENTED | HELD_BY_A_TEST.get(where, frozenset())
        for node in nodes:
            names: list[str] = []
            if isinstance(node, ast.Attribute):
                is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                names = [node.attr] if node.attr not in (ours if is_own else defined[path]) else []
            elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
                names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            for name in names:
                if name.startswith("_") and not name.startswith("__") and name not in allowed:
                    yield f"{where}:{node.lineno}: {name} is private to another module"


def definitions(nodes: tuple[ast.AST, ...]) -> Iterator[str]:
    """The names that a module defines: of functions, classes, variables and attributes."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def cancellations(root: Path) -> Iterator[str]:
    """Tasks that are cancelled once and then awaited: one that loses its cancellation would hold everything up."""
    for path in modules_of(root).values():
        text = path.read_text()
        for match in AWAITED.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path.relative_to(root)}:{line}: awaits what it cancels: haru.event_loop.cancelled does both"


def shared_names_of_tests(root: Path) -> Iterator[str]:
    """Modules of tests that another folder of tests has as well: pytest would collect neither."""
    first: dict[str, Path] = {}
    for path in sources_in(root / "tests"):
        other = first.setdefault(path.name, path)
        if other is not path and path.name not in ("__init__.py", "conftest.py"):
            yield f"{path.relative_to(root)}: {other.relative_to(root)} has that name as well"


def retired_words(root: Path) -> Iterator[str]:
    """Retired names in code, retired words in the prose of comments, docstrings and docs."""
    names, words = read_words(root / "tools" / "retired_words.txt")
    prose = re.compile(rf"(?<![\w/.-])({'|'.join(map(re.escape, sorted(words)))})(?![\w/-])", re.IGNORECASE)
    code = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
    for folder in CODE:
        for path in sources_in(root / folder):
            text = path.read_text()
            if not code.search(text) and not prose.search(text):
                continue
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                where = f"{path.relative_to(root)}:{token.start[0]}"
                if token.type == tokenize.NAME and token.string in names:
                    yield f"{where}: {token.string} is a retired name: {names[token.string]}"
                elif folder == "src" and token.type in (tokenize.COMMENT, tokenize.STRING):
                    for match in prose.finditer(token.string):
                        yield f"{where}: {match[0]!r} is a retired word: {words[match[1].lower()]}"
    for path in sorted([*(root / "docs").rglob("*.md"), root / "README.md"]):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for match in prose.finditer(line):
                where = f"{path.relative_to(root)}:{number}"
                yield f"{where}: {match[0]!r} is a retired word: {words[match[1].lower()]}"


def read_words(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Retired names (`name OLD: what to use`) and words of prose (`word OLD: what to use`)."""
    names: dict[str, str] = {}
    words: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            kind, _, rest = line.partition(" ")
            old, _, use = rest.partition(": ")
            (names if kind == "name" else words)[old if kind == "name" else old.lower()] = use
    return names, words


if __name__ == "__main__":
    gc.disable()  # what is allocated here is kept to the end
    sys.exit(main())
