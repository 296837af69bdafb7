"""Functions as tools."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import math
import threading
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from antiphon.errors import InvalidTypeError, NotJsonError, ToolLoadError
from antiphon.tools.base import ToolCall, ToolProgress
from antiphon.tools.context import ToolContext
from antiphon.tools.decorator import DONE, FunctionTool, tool, tool_result
from antiphon.tools.registry import ToolRegistry
from tests.tools.owner import Owner, success

if TYPE_CHECKING:
    from nowhere import Missing


@tool
def book(row: int, seat: Annotated[int, "Counted from the left."] = 1) -> str:
    """Book a seat.

    Args:
        row: Counted from the stage.

    Examples: book row 5
    """
    return f"row {row}, seat {seat}"


# --- what a tool is ---


def test_a_tool_is_still_the_function():
    assert isinstance(book, FunctionTool)
    assert book(5, seat=2) == "row 5, seat 2"
    assert (book.__name__, book.__module__) == ("book", __name__)
    assert book.__doc__.startswith("Book a seat.")
    assert repr(book) == "<tool 'book'>"
    assert book.tool_type == "function"


def test_a_tool_is_described_by_its_signature_and_docstring():
    assert book.tool_name == "book"
    assert book.tool_spec == {
        "name": "book",
        "description": "Book a seat.\n\nExamples: book row 5",
        "inputSchema": {
            "json": {
                "type": "object",
                "properties": {
                    "row": {"type": "integer", "description": "Counted from the stage."},
                    "seat": {"type": "integer", "default": 1, "description": "Counted from the left."},
                },
                "required": ["row"],
            }
        },
    }


def test_name_description_and_schema_may_be_given():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    for given_schema in (schema, {"json": schema}):

        @tool(name="other-name", description="Other words.", inputSchema=given_schema, repeatable=True)
        def f(n: int) -> int:
            """Not these."""
            return n

        assert f.tool_spec == {
            "name": "other-name",
            "description": "Other words.",
            "inputSchema": {"json": schema},
        }
        assert f.repeatable
    assert not book.repeatable


def test_a_tool_without_a_docstring_is_described_by_its_name():
    @tool
    def unlock() -> None: ...

    assert unlock.tool_spec["description"] == "unlock"


def test_annotations_may_name_what_is_defined_in_the_same_function():
    class Order(BaseModel):
        item: str

    @tool
    def order(it: Order, many: Optional[list[Order]] = None) -> Order:  # noqa: UP045 - both ways are tested
        return it

    schema = order.tool_spec["inputSchema"]["json"]
    assert schema["properties"]["it"]["$ref"] == "#/$defs/Order"


def test_annotations_may_name_what_is_defined_further_down():
    @tool
    def f(later: Later) -> None: ...

    assert f.tool_spec["inputSchema"]["json"]["$defs"]["Later"]["properties"] == {"n": {"type": "integer"}}


class Later(BaseModel):
    n: int


def test_an_annotation_that_only_a_type_checker_sees_is_told_when_the_tool_is_described():
    @tool
    def f(a: Missing) -> None: ...

    with pytest.raises(ToolLoadError, match=r"f': an annotation cannot be read: name 'Missing' is not defined"):
        ToolRegistry(f)


def test_an_annotation_that_is_none_is_told_when_the_tool_is_described():
    def no_attribute(a: date.Missing) -> None: ...
    def no_type(a: 1 + None) -> None: ...
    def no_expression(a) -> None: ...

    no_expression.__annotations__ = {"a": "not an expression"}
    for function in (no_attribute, no_type, no_expression):
        with pytest.raises(ToolLoadError, match="an annotation cannot be read"):
            _ = tool(function).tool_spec


@pytest.mark.parametrize("wrong", [5, None, "name", int, book])
def test_only_functions_can_be_tools(wrong):
    with pytest.raises(ToolLoadError, match="@tool takes a function or an asynchronous generator"):
        tool(name="wrong")(wrong)


def test_a_synchronous_generator_is_refused():
    def numbers():
        yield 1

    with pytest.raises(ToolLoadError, match="asynchronous generator"):
        tool(numbers)


def test_a_name_that_no_tool_may_have_is_refused_where_it_is_given():
    with pytest.raises(ToolLoadError, match="'two words' must be"):
        tool(name="two words")(print)
    with pytest.raises(ToolLoadError, match="'<lambda>' must be"):
        tool(lambda: None)


# --- how it runs ---


async def test_a_synchronous_function_runs_on_a_thread_of_its_own_in_the_callers_context():
    user = contextvars.ContextVar("user", default="nobody")
    threads = []

    @tool
    def who() -> str:
        threads.append(threading.current_thread())
        return user.get()

    user.set("ada")
    assert await Owner(who).content("who") == [{"text": "ada"}]
    assert threads[0] is not threading.current_thread()


async def test_an_asynchronous_function_runs_on_the_callers_loop():
    @tool
    async def where() -> bool:
        return asyncio.get_running_loop() is loop

    loop = asyncio.get_running_loop()
    assert await Owner(where).content("where") == [{"text": "true"}]


async def test_what_an_asynchronous_generator_yields_is_reported_and_the_last_value_is_the_result():
    @tool
    async def count(to: int):
        for number in range(to):
            yield number
        yield ToolProgress("nearly")
        yield {"counted": to}
        yield ToolProgress("all done")

    owner = Owner(count)
    assert await owner.content("count", {"to": 2}) == [{"json": {"counted": 2}}]
    assert owner.progress == [0, 1, "nearly", {"counted": 2}, "all done"]


async def test_progress_is_reported_before_the_tool_goes_on():
    seen, owner = [], None

    @tool
    async def count():
        yield 1
        seen.append(list(owner.progress))
        yield 2

    owner = Owner(count)
    await owner.content("count")
    assert seen == [[1]]


async def test_a_generator_without_a_value_gives_no_result():
    @tool
    async def silent():
        if DONE == "never":
            yield
        await asyncio.sleep(0)

    @tool
    async def only_progress():
        yield ToolProgress(1)

    owner = Owner(silent, only_progress)
    assert await owner.error("silent") == "Tool 'silent' did not return a result"
    assert await owner.error("only_progress") == "Tool 'only_progress' did not return a result"


async def test_a_generator_that_fails_half_way_is_an_error_and_is_closed():
    closed = []

    @tool
    async def breaks():
        try:
            yield 1
            raise LookupError("gone")
        finally:
            closed.append(True)

    owner = Owner(breaks)
    assert await owner.error("breaks") == "Error: LookupError - gone"
    assert owner.progress == [1]
    assert closed == [True]


async def test_partials_objects_and_functions_that_return_coroutines_are_awaited():
    async def add(a: int, b: int) -> int:
        return a + b

    class Adder:
        """Adds ten."""

        async def __call__(self, b: int) -> int:
            return 10 + b

    owner = Owner(
        tool(name="partial")(functools.partial(add, a=1)),
        tool(name="object")(Adder()),
        tool(name="plain", inputSchema={"type": "object"})(lambda **more: add(5, **more)),
    )
    assert await owner.content("partial", {"b": 2}) == [{"text": "3"}]
    assert await owner.content("object", {"b": 2}) == [{"text": "12"}]
    assert await owner.content("plain", {"b": 2}) == [{"text": "7"}]
    assert owner.tools.get("object").tool_spec["description"] == "Adds ten."


async def test_methods_are_tools_of_their_instance():
    class House:
        def __init__(self, name: str) -> None:
            self.name = name

        @tool
        def lock(self, door: str) -> str:
            """Lock a door."""
            return f"{door} of {self.name}"

        @tool
        async def ring(self, context: ToolContext) -> str:
            return f"{self.name} {context.tool_use['toolUseId']}"

        @tool
        @classmethod
        def count(cls, more: int) -> str:
            return f"{cls.__name__} {more}"

        @tool
        @staticmethod
        def area(side: int) -> int:
            return side * side

    house = House("north")
    owner = Owner(house.lock, house.ring, House.count, house.area)
    assert house.lock("gate") == "gate of north"
    assert House.lock(house, "gate") == "gate of north"
    assert (House.count(2), house.area(3)) == ("House 2", 9)
    assert await owner.content("lock", {"door": "gate"}) == [{"text": "gate of north"}]
    assert await owner.content("ring") == [{"text": "north t1"}]
    assert await owner.content("count", {"more": 1}) == [{"text": "House 1"}]
    assert await owner.content("area", {"side": 4}) == [{"text": "16"}]
    assert list(house.lock.tool_spec["inputSchema"]["json"]["properties"]) == ["door"]


async def test_input_is_checked_and_the_parameter_is_named():
    told = await Owner(book).error("book", {"row": "five"})
    assert told.startswith("Error: Validation failed for input parameters: row: Input should be a valid integer")
    assert "(got 'five')" in told
    assert "row: Field required" in await Owner(book).error("book")
    assert "expected an object, got list" in await Owner(book).error("book", [5])


async def test_nested_models_reach_the_function_as_models():
    class Order(BaseModel):
        item: str
        number: Annotated[int, Field(ge=1)] = 1

    @tool
    def order(it: Order) -> str:
        return f"{it.number} {it.item}"

    assert await Owner(order).content("order", {"it": {"item": "tea"}}) == [{"text": "1 tea"}]
    assert "it.number" in await Owner(order).error("order", {"it": {"item": "tea", "number": 0}})


# --- the context ---


async def test_a_parameter_annotated_as_the_context_is_given_it_and_the_model_is_not_told():
    @tool
    def plain(context: ToolContext, n: int = 1) -> str:
        return context.tool_use["name"]

    @tool
    async def generic(n: int, ctx: ToolContext[Any]) -> str:
        return ctx.tool_use["name"]

    @tool
    def noted(ctx: Annotated[ToolContext[Any], "not told"]) -> str:
        return ctx.tool_use["name"]

    @tool
    def optional(ctx: ToolContext | None = None) -> str:
        return "none" if ctx is None else ctx.tool_use["name"]

    @tool
    def general(call: ToolCall) -> str:
        return call.tool_use["name"]

    @tool(context="given")
    def named(given) -> str:
        return given.tool_use["name"]

    @tool(context=True)
    def usual(tool_context) -> str:
        return tool_context.tool_use["name"]

    tools = [plain, generic, noted, optional, general, named, usual]
    owner = Owner(*tools)
    for each in tools:
        assert await owner.content(each.tool_name, {"n": 1}) == [{"text": each.tool_name}]
        assert set(each.tool_spec["inputSchema"]["json"]["properties"]) <= {"n"}
    assert optional() == "none"


def test_a_list_of_contexts_is_no_context():
    @tool
    def f(contexts: list[ToolContext]) -> None: ...

    with pytest.raises(ToolLoadError):
        _ = f.tool_spec


def test_a_context_parameter_that_is_not_there_or_there_twice_is_refused():
    with pytest.raises(ToolLoadError, match="has no parameter 'tool_context' for its ToolContext"):

        @tool(context=True)
        def f(a: int) -> None: ...

    with pytest.raises(ToolLoadError, match="has no parameter 'ctx'"):

        @tool(context="ctx")
        def g(a: int) -> None: ...

    with pytest.raises(ToolLoadError, match=r"several parameters for its ToolContext: \['a', 'b'\]"):

        @tool
        def h(a: ToolContext, b: ToolContext) -> None: ...


async def test_a_tool_that_needs_a_context_is_not_run_without_one():
    @tool
    def f(context: ToolContext) -> None: ...

    with pytest.raises(InvalidTypeError, match="'f' needs a ToolContext, not a ToolCall"):
        await anext(f.stream(ToolCall(tool_use={"toolUseId": "1", "name": "f", "input": {}})))


# --- results ---


class Mood(StrEnum):
    FINE = "fine"


@dataclass
class Point:
    x: int
    when: date


class Pair(BaseModel):
    left: Point
    right: Decimal


@pytest.mark.parametrize(
    ("value", "block"),
    [
        ("words", {"text": "words"}),
        ("", {"text": ""}),
        (Mood.FINE, {"text": "fine"}),
        (4, {"text": "4"}),
        (2**70, {"text": str(2**70)}),
        (1.5, {"text": "1.5"}),
        (True, {"text": "true"}),
        (Decimal("1.50"), {"text": "1.50"}),
        (date(2026, 1, 2), {"text": "2026-01-02"}),
        ({"a": [1, None]}, {"json": {"a": [1, None]}}),
        ({"status": "shipped", "content": "tea"}, {"json": {"status": "shipped", "content": "tea"}}),
        ({"status": "success"}, {"json": {"status": "success"}}),
        ({1: {2}}, {"json": {"1": [2]}}),
        ((1, "two"), {"json": [1, "two"]}),
        ([], {"json": []}),
        (Point(1, date(2026, 1, 2)), {"json": {"x": 1, "when": "2026-01-02"}}),
        (
            [Pair(left=Point(1, date(2026, 1, 2)), right=Decimal(2))],
            {"json": [{"left": {"x": 1, "when": "2026-01-02"}, "right": "2"}]},
        ),
    ],
)
async def test_whatever_json_can_carry_becomes_a_result(value, block):
    @tool
    def give():
        return value

    assert await Owner(give).content("give") == [block]


async def test_a_dict_with_status_and_content_is_passed_on_and_not_changed():
    kept = success({"text": "mine"})

    @tool
    def give(how: str = "success"):
        return {**kept, "status": how} if how != "success" else kept

    owner = Owner(give)
    assert await owner.result("give") == {"toolUseId": "t1", "status": "success", "content": [{"text": "mine"}]}
    assert await owner.error("give", {"how": "error"}) == "mine"
    assert kept == success({"text": "mine"})


async def test_a_tool_that_returns_nothing_says_so():
    @tool
    def act(): ...
    @tool
    def act_declared() -> None: ...
    @tool
    async def act_later() -> None: ...
    @tool
    def find() -> int | None: ...
    @tool
    def anything() -> Any: ...

    owner = Owner(act, act_declared, act_later, find, anything)
    for name in ("act", "act_declared", "act_later", "anything"):
        assert await owner.content(name) == [{"text": DONE}]
    assert await owner.content("find") == [{"text": "null"}]


class Opaque:
    pass


async def test_a_value_that_json_cannot_carry_is_an_error_result():
    loop: list[Any] = []
    loop.append(loop)
    for value in (Opaque(), {"a": [Opaque()]}, loop):
        with pytest.raises(NotJsonError, match="result cannot be told to the model"):
            tool_result("t1", value)
        give = tool(name="give")(functools.partial(lambda value: value, value))
        assert "result cannot be told to the model" in await Owner(give).error("give")


async def test_a_number_that_json_does_not_know_is_named_with_its_path():
    @tool
    def give():
        return {"list": [1.0, math.inf]}

    assert "content[0].json.list[1] is Infinity" in await Owner(give).error("give")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_every_json_value_makes_a_result_of_its_call(value):
    result = tool_result("t9", value)
    assert (result["toolUseId"], len(result["content"])) == ("t9", 1)
    (block,) = result["content"]
    if isinstance(value, (list, dict)):
        assert block == {"json": value}
    else:
        assert isinstance(block["text"], str)
