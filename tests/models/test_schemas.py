"""Schemas of tools: whatever a tool's author wrote, every provider takes it, and a schema that all take stays as it is."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Agent, BidiAgent, tool
from antiphon.content import text_of
from antiphon.models.schemas import object_schema
from antiphon.testing import VirtualClock
from antiphon.testing.model_suite.talk import Talk
from tests.models.contract.providers import PROVIDERS as LIVE
from tests.models.test_takeover import PROVIDERS

PET = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ODD = {
    "empty": {},
    "no properties": {"type": "object"},
    "no type": {"properties": {"a": {"type": "string"}}},
    "nullable": {"type": ["object", "null"], "properties": {"a": {"type": ["array", "null"]}}},
    "arrays of anything": {
        "type": "object",
        "properties": {
            "plain": {"type": "array"},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "array"}]},
            "items": {"anyOf": [{"type": "array"}, {"type": "null"}]},
            "type": {"type": "string", "enum": ["array"]},
        },
    },
    "references": {
        "$defs": {"Pet": PET, "Tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Tree"}}}},
        "properties": {"pet": {"$ref": "#/$defs/Pet"}, "tree": {"$ref": "#/$defs/Tree"}},
    },
    "a reference at the top": {"$ref": "#/definitions/Pet", "definitions": {"Pet": PET}},
    "a reference to itself": {"$ref": "#", "properties": {"a": {"$ref": "#"}}},
    "a reference to nowhere": {"$ref": "#/$defs/Gone"},
    "one of two": {
        "type": "object",
        "properties": {"a": {}, "b": {}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "a union": {
        "oneOf": [
            {"properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind", "lives"]},
            {"properties": {"kind": {"const": "dog"}}, "required": ["kind"]},
        ]
    },
    "all of": {"allOf": [PET, {"properties": {"age": {"type": "integer"}}, "required": ["age"]}, True]},
    "constants": {"type": "object", "enum": [{}], "not": {"required": ["b"]}, "properties": {"a": True}},
    "unicode": {"type": "object", "properties": {"größe": {"type": "string", "pattern": "^\\p{L}+$", "default": "é"}}},
}


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("schema", ODD.values(), ids=ODD)
async def test_a_tool_with_an_odd_schema_is_taken_by_every_provider(name, schema):
    odd_tool = tool(name="odd", inputSchema=schema)(lambda **given: "done")
    async with PROVIDERS[name][0]() as server:
        server.say("Yes.")
        agent = Agent(PROVIDERS[name][1](server), tools=[odd_tool])
        assert text_of((await agent.invoke_async("Have you a tool?")).message) == "Yes."


@pytest.mark.parametrize("name", LIVE)
async def test_every_live_provider_takes_tools_with_odd_schemas(name):
    tools = [
        tool(name=f"odd_{number}", inputSchema=schema)(lambda **given: "done")
        for number, schema in enumerate(ODD.values())
    ]
    async with LIVE[name](VirtualClock(autojump=False)) as server:
        server.say("Yes.", seconds=0.1)
        clock = VirtualClock(autojump=False)
        async with Talk(BidiAgent(server.make(clock=clock), clock=clock, tools=tools), clock) as talk:
            await talk.agent.send("Have you a tool?")
            await talk.answers(1)
        assert server.complaints() == []


def test_alternatives_at_the_top_become_one_object():
    assert object_schema(ODD["a union"]) == {
        "type": "object",
        "properties": {"kind": {"anyOf": [{"const": "cat"}, {"const": "dog"}]}, "lives": {"type": "integer"}},
        "required": ["kind"],
    }


def test_what_all_of_them_demand_is_demanded_together():
    made = object_schema(ODD["all of"])
    assert made == {
        "type": "object",
        "properties": {"age": {"type": "integer"}, "name": {"type": "string"}},
        "required": ["name", "age"],
    }


def test_a_reference_at_the_top_is_followed_and_its_like_below_are_kept():
    assert object_schema(ODD["a reference at the top"]) == {**PET, "definitions": {"Pet": PET}}
    assert object_schema(ODD["a reference to itself"])["properties"] == {"a": {"$ref": "#"}}


_NAMES = st.sampled_from(["type", "items", "properties", "a", "array"])
_SCHEMAS = st.recursive(
    st.one_of(st.booleans(), st.fixed_dictionaries({"type": st.sampled_from(["array", "string", "object"])})),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["array", "object"]),
            "properties": st.dictionaries(_NAMES, inner, max_size=3),
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=3),
            "required": st.lists(_NAMES, max_size=2, unique=True),
        },
    ),
    max_leaves=12,
)


@given(_SCHEMAS)
def test_a_schema_that_has_been_made_fit_stays_as_it_is_and_what_it_was_made_of_too(schema):
    before = deepcopy(schema)
    made = object_schema(schema)
    assert object_schema(made) == made
    assert schema == before
    assert made["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf"} & made.keys()
