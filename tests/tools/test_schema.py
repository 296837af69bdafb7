"""What a model is told of parameters, and what it may send."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from keyword import iskeyword
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from antiphon.errors import InvalidInputError, ToolLoadError
from antiphon.tools.schema import Parameters, read_hints


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Seat(BaseModel):
    row: int = Field(title="Row")
    title: str = "none"


@dataclass
class Place:
    row: int
    title: str | None = None


class Ticket(TypedDict):
    title: str


def parameters(function, **more) -> Parameters:
    return Parameters(function, hints=read_hints(function), **more)


def properties(function, **more) -> dict[str, Any]:
    return parameters(function, **more).json_schema["properties"]


def call(function, given):
    args, kwargs = parameters(function).read(given)
    return function(*args, **kwargs)


# --- the schema ---


def test_the_schema_has_a_property_per_parameter_and_knows_which_are_required():
    def f(a: int, b: str = "x", *, c: bool, d: list[float] | None = None) -> None: ...

    assert parameters(f).json_schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "Parameter a"},
            "b": {"type": "string", "default": "x", "description": "Parameter b"},
            "c": {"type": "boolean", "description": "Parameter c"},
            "d": {"type": "array", "items": {"type": "number"}, "description": "Parameter d"},
        },
        "required": ["a", "c"],
    }


def test_a_function_without_parameters_has_an_empty_object():
    def f() -> None: ...

    assert parameters(f).json_schema == {"type": "object", "properties": {}}


def test_literals_enums_and_bounds_are_told():
    def f(label: Literal["tea", "eggs"], colour: Colour, hour: Annotated[int, Field(ge=0, le=23)]) -> None: ...

    schema = parameters(f).json_schema
    assert schema["properties"]["label"]["enum"] == ["tea", "eggs"]
    assert schema["$defs"]["Colour"]["enum"] == ["red", "blue"]
    assert (schema["properties"]["hour"]["minimum"], schema["properties"]["hour"]["maximum"]) == (0, 23)


def test_titles_are_left_out_and_what_is_called_title_stays():
    def f(seat: Seat, place: Place, ticket: Ticket, title: str, default: Any = None) -> None: ...

    schema = parameters(f).json_schema
    assert set(schema["properties"]) == {"seat", "place", "ticket", "title", "default"}
    for name in ("Seat", "Place"):
        assert set(schema["$defs"][name]["properties"]) == {"row", "title"}
        assert "title" not in schema["$defs"][name]
        assert schema["$defs"][name]["properties"]["row"] == {"type": "integer"}
    assert schema["$defs"]["Ticket"]["properties"] == {"title": {"type": "string"}}


def test_an_optional_parameter_is_told_as_what_it_is_when_it_is_there():
    def f(a: int | None = None, b: Optional[str] = "x", c: int | str | None = None) -> None: ...  # noqa: UP045

    assert properties(f) == {
        "a": {"type": "integer", "description": "Parameter a"},
        "b": {"type": "string", "default": "x", "description": "Parameter b"},
        "c": {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": "Parameter c"},
    }
    assert call(lambda a: a, {"a": None}) is None


def test_a_required_parameter_that_may_be_null_says_so():
    def f(a: int | None) -> None: ...

    assert properties(f)["a"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]


def test_a_description_comes_from_the_annotation_then_its_field_then_the_docstring():
    def f(
        a: Annotated[int, "from the annotation", Field(description="from the field")],
        b: Annotated[int, Field(description="from the field", ge=1)],
        c: int,
        d: int,
        e: int = Field(description="from the default", default=1),
    ) -> None: ...

    docs = dict.fromkeys("abce", "from the docstring")
    told = {name: described["description"] for name, described in properties(f, docs=docs).items()}
    assert told == {
        "a": "from the annotation",
        "b": "from the field",
        "c": "from the docstring",
        "d": "Parameter d",
        "e": "from the default",
    }


def test_parameters_that_somebody_else_fills_are_left_out():
    def f(self, a: int, context: object, *args: int, **kwargs: int) -> None: ...

    assert set(properties(f, skip=["context"])) == {"a"}


def test_only_the_first_parameter_can_be_the_object_of_a_method():
    def f(a: int, self: str) -> None: ...

    assert set(properties(f)) == {"a", "self"}


def test_any_name_is_possible():
    def f(model_config: int, schema: int, _hidden: int, json: int, copy: int, model_fields: int, p0: int) -> list[int]:
        return [model_config, schema, _hidden, json, copy, model_fields, p0]

    names = ["model_config", "schema", "_hidden", "json", "copy", "model_fields", "p0"]
    assert list(properties(f)) == names
    assert call(f, {name: index for index, name in enumerate(names)}) == list(range(7))


def test_a_default_that_json_cannot_say_is_left_out():
    marker = object()

    def f(a: Any = marker, b: date = date(2026, 1, 2)) -> Any:
        return a

    assert "default" not in properties(f)["a"]
    assert properties(f)["b"]["default"] == "2026-01-02"
    assert call(f, {}) is marker


def test_a_type_that_pydantic_cannot_check_is_refused_by_name():
    class Odd: ...

    def f(odd: Odd) -> None: ...

    with pytest.raises(ToolLoadError, match=r"'test_a_type.*f' has a parameter that pydantic cannot check"):
        parameters(f)


def test_a_type_that_json_cannot_describe_is_refused_by_name():
    def f(callback: Callable[[], int]) -> None: ...

    with pytest.raises(ToolLoadError, match=r"'test_a_type.*f' has a parameter that JSON Schema cannot describe"):
        parameters(f)


# --- the input of a call ---


def test_nested_values_arrive_as_what_they_are_annotated():
    def f(seat: Seat, places: list[Place], when: date, colour: Colour) -> Any:
        return seat, places, when, colour

    given = {"seat": {"row": "3"}, "places": [{"row": 1, "title": "x"}], "when": "2026-01-02", "colour": "blue"}
    assert call(f, given) == (Seat(row=3), [Place(1, "x")], date(2026, 1, 2), Colour.BLUE)


def test_defaults_are_the_functions_own():
    default = []

    def f(a: list[int] = default, b: int = Field(default=5)) -> Any:
        return a, b

    result = call(f, {})
    assert result == ([], 5)
    assert result[0] is default


def test_what_a_function_does_not_take_is_dropped_unless_it_takes_everything():
    def f(a: int) -> int:
        return a

    def g(a: int, **more: Any) -> dict[str, Any]:
        return more

    assert call(f, {"a": 1, "b": 2}) == 1
    assert call(g, {"a": 1, "b": 2, "c": [3]}) == {"b": 2, "c": [3]}
    assert "additionalProperties" not in parameters(g).json_schema


def test_positional_parameters_are_given_by_position():
    def f(a: int, b: int = 2, /, c: int = 3, *args: int, d: int = 4) -> Any:
        return a, b, c, args, d

    assert call(f, {"a": "1"}) == (1, 2, 3, (), 4)
    assert call(f, {"a": 1, "b": 7, "c": 8, "d": 9}) == (1, 7, 8, (), 9)


def test_nothing_stands_for_an_empty_input():
    def f(a: int = 1) -> int:
        return a

    for nothing in (None, "", {}):
        assert call(f, nothing) == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "row: Field required"),
        ({"row": "two", "label": "tea"}, r"row: .*integer.* \(got 'two'\)"),
        ({"row": 1, "label": "coffee"}, r"label: .*'tea' or 'eggs' \(got 'coffee'\)"),
        ({"row": 1, "seat": {"row": "x"}}, r"seat\.row: .*integer"),
        ({"row": "x" * 500}, r"\(got 'x{70,80}\.\.\.\)"),
        ([1], "expected an object, got list"),
        ("row 1", "expected an object, got str"),
        (5, "expected an object, got int"),
    ],
)
def test_an_input_that_cannot_be_used_is_refused_by_the_name_of_the_parameter(given, told):
    def f(row: int, label: Literal["tea", "eggs"] = "tea", seat: Seat | None = None) -> None: ...

    with pytest.raises(InvalidInputError, match=f"^Validation failed for input parameters: .*{told}"):
        parameters(f).read(given)


# --- the law: what the schema allows is accepted, and arrives as it was ---

OWN = {"self", "cls"}
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**40), 2**40),
    str: st.text(max_size=8),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
    Seat: st.builds(Seat, row=st.integers(0, 99), title=st.text(max_size=5)),
    Place: st.builds(Place, row=st.integers(0, 99), title=st.none() | st.text(max_size=5)),
}


def hints_and_values() -> st.SearchStrategy[tuple[Any, Any]]:
    leaves = st.sampled_from(list(LEAVES)).flatmap(lambda hint: st.tuples(st.just(hint), LEAVES[hint]))
    return leaves.flatmap(
        lambda pair: st.sampled_from(
            [pair, (list[pair[0]], [pair[1]] * 2), (pair[0] | None, pair[1]), (dict[str, pair[0]], {"key": pair[1]})]
        )
    )


def plain(value: Any) -> Any:
    """What a model would send for it."""
    match value:
        case BaseModel():
            return value.model_dump()
        case Place():
            return {"row": value.row, "title": value.title}
        case list():
            return [plain(item) for item in value]
        case dict():
            return {key: plain(item) for key, item in value.items()}
    return value


names = st.from_regex(r"[a-z_]{1,6}", fullmatch=True).filter(lambda name: not iskeyword(name) and name not in OWN)


@given(st.dictionaries(names, st.tuples(hints_and_values(), st.booleans()), max_size=5), st.data())
def test_valid_input_arrives_as_it_was_meant_whatever_the_signature(drawn, data):
    def f(**kwargs):
        return kwargs

    hints = {name: hint for name, ((hint, _), _) in drawn.items()}
    values = {name: value for name, ((_, value), _) in drawn.items()}
    optional = {name for name, (_, has_default) in drawn.items() if has_default}
    empty, keyword = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
    f.__signature__ = inspect.Signature(
        [inspect.Parameter(name, keyword, default=None if name in optional else empty) for name in drawn]
    )
    found = Parameters(f, hints=hints)
    given = {name: value for name, value in values.items() if name not in optional or data.draw(st.booleans())}
    args, kwargs = found.read(plain(given))
    assert args == []
    assert kwargs == given
    assert list(found.json_schema["properties"]) == list(drawn)
    assert found.json_schema.get("required", []) == [name for name in drawn if name not in optional]
    assert "title" not in found.json_schema
