"""Whatever a history is like, the Gemini API accepts the request that is made of it."""

import json
import string
from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import ModelRequestError
from antiphon.models.google.gemini_request import BEGINNING, GO_ON, gemini_config, gemini_contents
from antiphon.models.google.gemini_schema import gemini_schema
from antiphon.models.google.gemini_signatures import ON_CALLS, UNSIGNED, to_text
from antiphon.testing.servers.gemini_rules import check_body, sign

SIGNATURE = b64decode(sign(1))


def accepted(messages):
    """The contents; raises what the API would raise."""
    contents = gemini_contents(messages)
    wire = json.loads(json.dumps({"contents": contents}, default=lambda data: b64encode(data).decode()))
    check_body(wire, context_tokens=10**9, signatures=True)
    return contents


def user(*blocks):
    return {"role": "user", "content": [{"text": block} if isinstance(block, str) else block for block in blocks]}


def assistant(*blocks):
    return {**user(*blocks), "role": "assistant"}


def call(key="a", name="weather", *, signature=None, **content):
    signed = {} if signature is None else {ON_CALLS: signature}
    return {"toolUse": {"toolUseId": key, "name": name, "input": content, **signed}}


def result(key="a", *content, status="success"):
    return {"toolResult": {"toolUseId": key, "status": status, "content": list(content) or [{"text": "done"}]}}


def thought(text, signature=None):
    signed = {} if signature is None else {"signature": signature}
    return {"reasoningContent": {"reasoningText": {"text": text, **signed}}}


def test_messages_of_one_role_are_joined_and_blanks_left_out():
    contents = accepted([user("a", " "), user("b"), assistant("c"), assistant("\n"), user("d")])
    assert contents == [
        {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
        {"role": "model", "parts": [{"text": "c"}]},
        {"role": "user", "parts": [{"text": "d"}]},
    ]


def test_a_history_that_the_assistant_begins_or_ends_gets_words_of_the_user():
    contents = accepted([assistant(call()), user(result()), assistant("Well.")])
    assert contents[0]["parts"] == [{"text": BEGINNING}]
    assert contents[-1]["parts"] == [{"text": GO_ON}]


def test_results_stand_alone_and_name_their_tool():
    history = [user("hi"), assistant(call("a"), call("b", "clock")), user("also", result("b"), result("a")), user("!")]
    contents = accepted(history)
    names = [part["function_response"]["name"] for part in contents[2]["parts"]]
    assert names == ["clock", "weather"]
    assert contents[3]["parts"] == [{"text": "also"}, {"text": "!"}]


def test_results_are_outputs_or_errors():
    image = {"image": {"format": "png", "source": {"bytes": b"png"}}}
    history = [
        user("hi"),
        assistant(call("a"), call("b"), call("c")),
        user(
            result("a", {"json": {"t": 1}}),
            result("b", {"text": "no"}, status="error"),
            result("c", {"text": "x"}, {"json": [1]}, image),
        ),
    ]
    one, two, three = [part["function_response"] for part in accepted(history)[2]["parts"]]
    assert one["response"] == {"output": {"t": 1}}
    assert two["response"] == {"error": "no"}
    assert three["response"] == {"output": ["x", [1]]}
    assert three["parts"] == [{"inline_data": {"mime_type": "image/png", "data": b"png"}}]


def test_a_signature_goes_back_in_the_part_in_which_it_came():
    history = [user("hi"), assistant(call("a", signature=SIGNATURE), call("b")), user(result("a"), result("b"))]
    first, second = accepted(history)[1]["parts"]
    assert first["thought_signature"] == SIGNATURE
    assert "thought_signature" not in second


def test_the_call_of_another_model_is_said_to_be_unsigned():
    [part] = accepted([user("hi"), assistant(call()), user(result())])[1]["parts"]
    assert part["thought_signature"] == UNSIGNED


def test_signed_reasoning_goes_back_and_other_reasoning_does_not():
    history = [
        user("hi"),
        assistant(thought("aloud"), "Hello.", thought("", to_text(SIGNATURE)), thought("Claude's", "c2ln")),
        user("and?"),
    ]
    assert accepted(history)[1]["parts"] == [{"text": "Hello."}, {"text": "", "thought_signature": SIGNATURE}]


def test_media_are_sent_with_their_bytes_or_their_place():
    history = [
        user(
            {"image": {"format": "jpeg", "source": {"bytes": b"\xff"}}},
            {"document": {"format": "pdf", "name": "Bill", "source": {"bytes": b"%PDF"}}},
            {"video": {"format": "mp4", "source": {"location": {"uri": "gs://bucket/a.mp4"}}}},
        )
    ]
    assert accepted(history)[0]["parts"] == [
        {"inline_data": {"mime_type": "image/jpeg", "data": b"\xff"}},
        {"inline_data": {"mime_type": "application/pdf", "data": b"%PDF"}},
        {"file_data": {"file_uri": "gs://bucket/a.mp4", "mime_type": "video/mp4"}},
    ]


@pytest.mark.parametrize(
    "block",
    [
        {"document": {"format": "docx", "name": "x", "source": {"bytes": b"d"}}},
        {"image": {"format": "bmp", "source": {"bytes": b"i"}}},
        {"image": {"format": "png", "source": {"location": {"uri": "s3://bucket/a.png"}}}},
    ],
)
def test_what_gemini_cannot_take_is_named(block):
    with pytest.raises(ModelRequestError, match=r"docx|bmp|s3://"):
        gemini_contents([user(block)])


def test_tools_and_the_system_prompt_are_configuration():
    spec = {"name": "weather", "description": "Tells", "inputSchema": {"json": {"properties": {"a": {"const": 1}}}}}
    system = [{"text": "Be kind."}, {"cachePoint": {"type": "default"}}, {"text": "Be brief."}]
    config = gemini_config([spec], system, {"tools": [{"google_search": {}}], "temperature": 1})
    assert config["system_instruction"] == "Be kind.\nBe brief."
    assert config["temperature"] == 1
    declared, search = config["tools"]
    assert declared["function_declarations"][0]["parameters_json_schema"] == {
        "type": "object",
        "properties": {"a": {"enum": [1]}},
    }
    assert search == {"google_search": {}}
    assert config["automatic_function_calling"] == {"disable": True}


def test_schemas_keep_what_gemini_knows():
    schema = {
        "$schema": "x",
        "type": "object",
        "definitions": {"D": {"type": "string", "pattern": "a"}},
        "allOf": [{"properties": {"x": {"$ref": "#/definitions/D"}}, "required": ["x"]}],
        "properties": {
            "pattern": {"type": "array", "items": {"type": "integer", "exclusiveMinimum": 3}, "uniqueItems": True},
            "either": {"anyOf": [{"type": "string", "default": "a"}, {"type": "null"}]},
        },
        "required": ["either"],
        "additionalProperties": False,
    }
    assert gemini_schema(schema) == {
        "type": "object",
        "$defs": {"D": {"type": "string"}},
        "properties": {
            "pattern": {"type": "array", "items": {"type": "integer", "minimum": 4}},
            "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "x": {"$ref": "#/$defs/D"},
        },
        "required": ["either", "x"],
        "additionalProperties": False,
    }


TEXTS = st.text(alphabet=string.ascii_letters + " \n", max_size=8)
IDS = st.text(alphabet="ab.:-_", min_size=1, max_size=3)
PLAIN = st.one_of(TEXTS.map(lambda text: {"text": text}), st.just({"cachePoint": {"type": "default"}}))
THOUGHTS = st.one_of(
    TEXTS.map(thought),
    TEXTS.map(lambda text: thought(text, to_text(SIGNATURE))),
    TEXTS.map(lambda text: thought(text, "b")),
)


@st.composite
def histories(draw):
    """What an agent's history may be: calls have their results in the next message, and little else is sure."""
    messages, taken = [], set()
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            messages.append(user(*draw(st.lists(PLAIN, max_size=3))))
            continue
        blocks = draw(st.lists(st.one_of(PLAIN, THOUGHTS), max_size=3))
        keys = [key for key in draw(st.lists(IDS, max_size=3, unique=True)) if key not in taken]
        taken.update(keys)
        calls = [call(key, signature=SIGNATURE if draw(st.booleans()) else None) for key in keys]
        messages.append(assistant(*blocks, *calls))
        if keys:
            order = draw(st.permutations(keys))
            messages.append(user(*draw(st.lists(PLAIN, max_size=2)), *[result(key) for key in order]))
    return [*messages, user("and now?")]


@settings(max_examples=150, deadline=None)
@given(history=histories())
def test_every_history_of_an_agent_is_accepted(history):
    accepted(history)
