"""Tools by name, from wherever they are given."""

import asyncio
import sys
import types

import pytest

from antiphon.errors import DuplicateToolError, InvalidInputError, ToolLoadError
from antiphon.tools.base import ToolProvider
from antiphon.tools.decorator import tool
from antiphon.tools.registry import ToolRegistry
from tests.tools import things
from tests.tools.owner import PlainTool
from tests.tools.things import fan, light

HERE = "tests.tools.things"


class Provider:
    """Brings tools, and counts who uses them."""

    def __init__(self, *tools, error=None) -> None:
        self.tools, self.error = tools, error
        self.consumers = []
        self.loaded = 0

    async def load_tools(self):
        await asyncio.sleep(0)
        self.loaded += 1
        if self.error is not None:
            raise self.error
        return list(self.tools)

    def add_consumer(self, consumer_id):
        self.consumers.append(consumer_id)

    def remove_consumer(self, consumer_id):
        self.consumers.remove(consumer_id)


# --- what tools may be given as ---


def test_tools_are_found_by_name_in_order_of_registration():
    registry = ToolRegistry([light, PlainTool("plain")])
    assert registry.register(fan) == ["fan-speed"]
    assert registry.names() == ["light", "plain", "fan-speed"]
    assert [spec["name"] for spec in registry.specs()] == registry.names()
    assert [known.tool_name for known in registry] == registry.names()
    assert len(registry) == 3
    assert "light" in registry
    assert registry.get("light") is light
    assert registry.get("fan_speed") is None


def test_a_direct_call_finds_a_tool_where_dash_and_underscore_are_the_same():
    registry = ToolRegistry([light, fan])
    assert registry.find("fan_speed") is fan
    assert registry.find("fan-speed") is fan
    assert registry.find("light") is light
    assert registry.find("Light") is None


def test_lists_and_tuples_may_be_nested():
    registry = ToolRegistry([[light], (PlainTool("a"), [PlainTool("b")]), iter([fan]), []])
    assert registry.names() == ["light", "a", "b", "fan-speed"]
    assert ToolRegistry().names() == []


def test_a_module_stands_for_its_public_tools_each_once():
    for source in (things, [things], HERE):
        assert ToolRegistry(source).names() == ["light", "fan-speed", "hand_made"]


def test_a_module_with_a_list_of_its_names_stands_for_these():
    module = types.ModuleType("chosen")
    module.one, module._two, module.three = PlainTool("one"), PlainTool("two"), PlainTool("three")
    module.__all__ = ["_two", "one", "not_there"]
    assert ToolRegistry(module).names() == ["two", "one"]


def test_a_string_may_name_a_module_and_a_tool_in_it():
    assert ToolRegistry([f"{HERE}:fan", f"{HERE}:Shelf.book"]).names() == ["fan-speed", "book"]


def test_a_string_may_name_a_file(tmp_path, monkeypatch):
    source = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from antiphon.tools.decorator import tool\n"
        "@dataclass\n"
        "class Seat:\n"
        "    row: int\n"
        "@tool\n"
        "def book(seat: Seat) -> int:\n"
        "    return seat.row\n"
        "@tool\n"
        "def cancel() -> None: ...\n"
    )
    (tmp_path / "one").mkdir()
    for path in (tmp_path / "my tools.py", tmp_path / "one" / "my tools.py"):
        path.write_text(source)
    first = ToolRegistry(f"{tmp_path}/my tools.py")
    assert first.names() == ["book", "cancel"]
    assert first.get("book").tool_spec["inputSchema"]["json"]["$defs"]["Seat"]["properties"] == {
        "row": {"type": "integer"}
    }
    second = ToolRegistry(f"{tmp_path}/one/my tools.py:book")
    assert second.names() == ["book"]
    assert second.get("book") is not first.get("book")
    monkeypatch.chdir(tmp_path)
    assert ToolRegistry("my tools.py").names() == ["book", "cancel"]


# --- providers ---


async def test_a_provider_is_loaded_at_once_also_inside_a_running_loop():
    provider = Provider(light, PlainTool("brought"))
    assert isinstance(provider, ToolProvider)
    registry = ToolRegistry([fan, provider])
    assert registry.names() == ["fan-speed", "light", "brought"]
    assert provider.loaded == 1
    assert provider.consumers == [registry.consumer_id]
    registry.release()
    assert provider.consumers == []
    registry.release()
    assert registry.names() == ["fan-speed", "light", "brought"]


def test_two_agents_may_use_one_provider():
    provider = Provider(light)
    one, two = ToolRegistry(provider), ToolRegistry(provider)
    assert provider.consumers == [one.consumer_id, two.consumer_id]
    one.release()
    assert provider.consumers == [two.consumer_id]


def test_a_provider_that_fails_is_named_and_left():
    for provider in (Provider(error=OSError("no route")), Provider("not a tool")):
        with pytest.raises(ToolLoadError, match="Provider"):
            ToolRegistry([light, provider])
        assert provider.consumers == []


def test_a_provider_given_twice_is_an_error():
    provider = Provider(light)
    with pytest.raises(DuplicateToolError, match="given twice"):
        ToolRegistry([provider, provider])
    assert provider.consumers == []


def test_when_a_later_tool_cannot_be_added_nothing_is():
    provider = Provider(PlainTool("brought"))
    registry = ToolRegistry(light)
    with pytest.raises(DuplicateToolError):
        registry.register([provider, PlainTool("new"), PlainTool("light")])
    assert registry.names() == ["light"]
    assert provider.consumers == []


# --- what is refused ---


def test_a_name_that_is_taken_is_refused():
    registry = ToolRegistry(light)
    with pytest.raises(DuplicateToolError, match="'light' is registered already"):
        registry.register(PlainTool("light"))
    with pytest.raises(DuplicateToolError, match="'light' is registered already"):
        registry.register(light)
    with pytest.raises(ValueError, match="'two' is registered already"):
        ToolRegistry([PlainTool("two"), PlainTool("two")])


def test_names_that_differ_only_in_dash_and_underscore_are_refused():
    with pytest.raises(DuplicateToolError, match=r"'fan_speed' .* differs from 'fan-speed' only in '-' and '_'"):
        ToolRegistry([fan, PlainTool("fan_speed")])


@pytest.mark.parametrize("name", ["", "two words", "ümlaut", "x" * 65, "a.b", "a\n", None, 5])
def test_a_name_that_some_provider_refuses_is_refused_here(name):
    with pytest.raises(ToolLoadError, match="must be 1 to 64 letters"):
        ToolRegistry(PlainTool(name))


def test_a_name_of_64_characters_is_fine():
    assert ToolRegistry(PlainTool("x" * 64)).names() == ["x" * 64]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"description": None}, "has no description"),
        ({"inputSchema": {}}, "inputSchema must be"),
        ({"inputSchema": {"json": []}}, "inputSchema must be"),
        ({"inputSchema": None}, "inputSchema must be"),
    ],
)
def test_a_tool_that_is_not_described_is_refused(spec, told):
    with pytest.raises(ToolLoadError, match=told):
        ToolRegistry(PlainTool("odd", **spec))


def test_a_tool_whose_description_fails_is_refused_with_its_error():
    class Odd(PlainTool):
        @property
        def tool_spec(self):
            raise LookupError("no spec")

    with pytest.raises(ToolLoadError, match="LookupError: no spec") as refused:
        ToolRegistry(Odd())
    assert isinstance(refused.value.__cause__, LookupError)
    assert isinstance(refused.value, InvalidInputError)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("no.such.module", r"'no\.such\.module': ModuleNotFoundError"),
        (f"{HERE}:missing", "has no 'missing'"),
        (f"{HERE}:no_tool", "decorate it with @tool"),
        (f"{HERE}:", "has no ''"),
        ("", "give package.module"),
        ("not a module", "give package.module"),
        ("no/such/file.py", "there is no file"),
        ("tests.source_tree", "defines no tools"),
        (things.no_tool, r"'no_tool': it is a plain function or class, decorate a function with @tool"),
        (PlainTool, "'PlainTool': it is a plain function or class"),
        (types.ModuleType("empty"), "'empty': it defines no tools"),
        (5, "failed to load tool 5"),
        (None, "failed to load tool None"),
        (b"bytes", "failed to load tool b'bytes'"),
        ({"name": "x"}, "failed to load tool {'name': 'x'}"),
    ],
)
def test_what_cannot_be_loaded_is_named(source, told):
    with pytest.raises(ToolLoadError, match=told):
        ToolRegistry([source])


def test_a_file_that_fails_is_named_with_its_error_and_leaves_nothing_behind(tmp_path):
    before = set(sys.modules)
    for text, told in (("1 / 0", "ZeroDivisionError"), ("def", "SyntaxError"), ("x = 1", "defines no tools")):
        path = tmp_path / f"{told[:4]}.py"
        path.write_text(text)
        with pytest.raises(ToolLoadError, match=f"{path}.*{told}"):
            ToolRegistry(str(path))
    assert {name for name in set(sys.modules) - before if "Zero" in name or "Synt" in name} == set()


def test_a_method_is_given_by_its_instance():
    class House:
        @tool
        def lock(self, door: str) -> str:
            return f"{door} locked"

    with pytest.raises(ToolLoadError, match="'lock' is a method: give that of an instance"):
        ToolRegistry(House.lock)
    assert ToolRegistry(House().lock).names() == ["lock"]


def test_the_list_of_descriptions_is_the_callers():
    registry = ToolRegistry(light)
    registry.specs().clear()
    assert [spec["name"] for spec in registry.specs()] == ["light"]
    registry.register(fan)
    assert [spec["name"] for spec in registry.specs()] == ["light", "fan-speed"]
