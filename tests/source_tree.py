"""The package as text: its modules, what each imports, and which import one another in a circle."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SRC = Path(__file__).parent.parent / "src"
ROOT = "antiphon"


@dataclass(frozen=True, slots=True)
class Import:
    """One imported thing: `target` is the module, or the package where a name was taken from its `__init__`."""

    target: str
    line: int


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    path: Path
    tree: ast.Module
    is_package: bool

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(SRC.parent)}:{line}"


def read_modules(src: Path = SRC) -> dict[str, Module]:
    modules = {}
    for path in sorted(src.rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)), is_package)
    return modules


def imports(module: Module, known: Iterable[str]) -> Iterator[Import]:
    """Everything it imports, wherever the statement stands.

    `from package import submodule` passes through the package's `__init__`, so it yields the package and the submodule.
    """
    known = frozenset(known)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(module, node)
            yield Import(base, node.lineno)
            submodules = (f"{base}.{alias.name}" for alias in node.names)
            yield from (Import(name, node.lineno) for name in submodules if name in known)


def absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    kept = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*kept, node.module] if node.module else kept)


def knots(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of two or more nodes that reach one another (Tarjan), and nodes that reach themselves directly."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for following in edges[node]:
            if following not in order:
                visit(following)
                low[node] = min(low[node], low[following])
            elif following in stack:
                low[node] = min(low[node], order[following])
        if low[node] == order[node]:
            group = stack[stack.index(node) :]
            del stack[-len(group) :]
            if len(group) > 1 or node in edges[node]:
                found.append(sorted(group))

    for node in edges:
        if node not in order:
            visit(node)
    return found


def attributes(node: ast.ClassDef) -> set[str]:
    """The names of a class's state: what its methods assign on `self`, and its annotated fields."""
    assigned = {
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and ast.unparse(inner.value) == "self"
    }
    fields = {
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and "ClassVar" not in ast.unparse(statement.annotation)
    }
    return assigned | fields


def classes(module: Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))
