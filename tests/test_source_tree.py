"""The architecture's checks see what they say they see."""

import ast
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.source_tree import attributes, imports, knots, read_modules

NODES = "abcdef"


def package(folder: Path, **sources: str) -> Path:
    for name, source in sources.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(source, encoding="utf-8")
    return folder


def targets(src: Path, name: str) -> set[str]:
    modules = read_modules(src)
    return {found.target for found in imports(modules[name], modules)}


def test_an_import_counts_wherever_it_stands(tmp_path):
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.b\ndef f():\n    from p.c import x\n"
    assert targets(package(tmp_path, p__a=source, p__b="", p__c=""), "p.a") == {"typing", "p.b", "p.c"}


def test_a_submodule_taken_from_its_package_counts_as_both(tmp_path):
    assert targets(package(tmp_path, p__q__a="from p.q import b, other", p__q__b=""), "p.q.a") == {"p.q", "p.q.b"}


def test_a_relative_import_is_resolved(tmp_path):
    src = package(tmp_path, p__q__a="from .b import x\nfrom ..c import y\nfrom . import b", p__q__b="", p__c="")
    (src / "p" / "q" / "__init__.py").write_text("from .a import x", encoding="utf-8")
    assert targets(src, "p.q.a") == {"p.q.b", "p.c", "p.q"}
    assert targets(src, "p.q") == {"p.q.a"}


@given(st.sets(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES))))
def test_a_knot_is_a_group_whose_members_all_reach_one_another(pairs):
    edges = {node: {other for one, other in pairs if one == node} for node in NODES}
    reached = {node: set(following) for node, following in edges.items()}
    for _ in NODES:
        for node in NODES:
            reached[node] |= {further for step in reached[node] for further in reached[step]}
    groups = {tuple(sorted({b for b in reached[a] if a in reached[b]})) for a in NODES if a in reached[a]}
    assert {tuple(knot) for knot in knots(edges)} == groups


def test_state_is_what_is_assigned_on_self_and_what_is_annotated():
    source = """
class Call:
    kind: ClassVar[str] = "live"
    name: str
    def __init__(self):
        self.one, self.two = 1, 2
        for self.three in (): pass
    def use(self, other):
        self.one += 1
        other.five = self.six
"""
    [node] = ast.parse(source).body
    assert attributes(node) == {"name", "one", "two", "three"}
