"""Whatever a history is like, Anthropic's API accepts the request that is made of it."""

import json
import string
from base64 import b64decode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import ModelRequestError
from antiphon.models.anthropic.request import BEGINNING, GO_ON, messages_request
from antiphon.testing.servers.anthropic_rules import LATEST, check_body, sign


def request_of(messages, specs=None, system=None, **params):
    return messages_request(messages, specs, system, model_id="claude", max_tokens=4000, params=params)


def accepted(request):
    """Raises what the API would raise."""
    check_body(
        json.loads(json.dumps(request)), model_id="claude", version=LATEST, context_tokens=10**9, most_tokens=64_000
    )
    return request


def user(*blocks):
    return {"role": "user", "content": [{"text": block} if isinstance(block, str) else block for block in blocks]}


def assistant(*blocks):
    return {**user(*blocks), "role": "assistant"}


def call(key="toolu_1", name="weather", **content):
    return {"toolUse": {"toolUseId": key, "name": name, "input": content}}


def result(key="toolu_1", *content, status="success"):
    return {"toolResult": {"toolUseId": key, "status": status, "content": list(content) or [{"text": "done"}]}}


def thought(text, signature=None):
    signed = {} if signature is None else {"signature": signature}
    return {"reasoningContent": {"reasoningText": {"text": text, **signed}}}


def test_a_plain_question_is_one_user_message():
    request = accepted(request_of([user("hello")], system="Be kind."))
    assert request["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    assert request["system"] == "Be kind."
    assert request["max_tokens"] == 4000
    assert "tools" not in request


def test_messages_of_one_role_are_joined():
    request = accepted(request_of([user("a"), user("b"), assistant("c"), assistant("d"), user("e")]))
    assert [(turn["role"], len(turn["content"])) for turn in request["messages"]] == [
        ("user", 2),
        ("assistant", 2),
        ("user", 1),
    ]


def test_results_come_first_in_the_message_after_their_calls():
    history = [user("hi"), assistant(call()), user("by the way", result())]
    request = accepted(request_of(history))
    assert [block["type"] for block in request["messages"][2]["content"]] == ["tool_result", "text"]


def test_blank_texts_and_messages_without_content_are_left_out():
    history = [user("hi", " ", ""), assistant("  \n"), user("there"), assistant(), user("again")]
    request = accepted(request_of(history, system="  "))
    assert [block["text"] for turn in request["messages"] for block in turn["content"]] == ["hi", "there", "again"]
    assert "system" not in request


def test_a_history_that_the_assistant_begins_or_ends_gets_words_of_the_user():
    request = accepted(request_of([assistant("Good morning."), user("hi"), assistant("And?")]))
    assert request["messages"][0]["content"][0]["text"] == BEGINNING
    assert request["messages"][-1]["content"][0]["text"] == GO_ON


def test_ids_of_other_providers_become_legal_and_stay_apart():
    history = [
        user("hi"),
        assistant(call("call.1"), call("call_1"), call("call:1")),
        user(result("call:1"), result("call.1"), result("call_1")),
    ]
    request = accepted(request_of(history))
    uses = [block["id"] for block in request["messages"][1]["content"]]
    results = [block["tool_use_id"] for block in request["messages"][2]["content"]]
    assert len(set(uses)) == 3
    assert uses[1] == "call_1"
    assert results == [uses[2], uses[0], uses[1]]


def test_results_keep_texts_json_images_and_whether_they_are_errors():
    image = {"image": {"format": "png", "source": {"bytes": b"png"}}}
    history = [
        user("hi"),
        assistant(call("a"), call("b")),
        user(result("a", {"json": {"t": "ä"}}, {"text": " "}, image), result("b", {"text": "no"}, status="error")),
    ]
    first, second = accepted(request_of(history))["messages"][2]["content"]
    assert [part["type"] for part in first["content"]] == ["text", "image"]
    assert first["content"][0]["text"] == '{"t": "ä"}'
    assert "is_error" not in first
    assert second["is_error"] is True


def test_images_and_documents_are_sent_with_their_bytes():
    history = [
        user(
            {"image": {"format": "jpeg", "source": {"bytes": b"\xff\xd8"}}},
            {"document": {"format": "pdf", "name": "Bill", "source": {"bytes": b"%PDF"}}},
            {"document": {"format": "md", "name": "Notes", "source": {"bytes": "# Grüße".encode()}}},
            {"image": {"format": "png", "source": {"location": {"uri": "https://example.org/a.png"}}}},
            "What is this?",
        )
    ]
    jpeg, pdf, notes, linked, _ = accepted(request_of(history))["messages"][0]["content"]
    assert jpeg["source"]["media_type"] == "image/jpeg"
    assert b64decode(jpeg["source"]["data"]) == b"\xff\xd8"
    assert pdf["source"]["media_type"] == "application/pdf"
    assert pdf["title"] == "Bill"
    assert notes["source"] == {"type": "text", "media_type": "text/plain", "data": "# Grüße"}
    assert linked["source"] == {"type": "url", "url": "https://example.org/a.png"}


@pytest.mark.parametrize(
    "block",
    [
        {"video": {"format": "mp4", "source": {"bytes": b"v"}}},
        {"document": {"format": "docx", "name": "x", "source": {"bytes": b"d"}}},
        {"image": {"format": "bmp", "source": {"bytes": b"i"}}},
        {"image": {"format": "png", "source": {"location": {"uri": "s3://bucket/a.png"}}}},
    ],
)
def test_what_claude_cannot_take_is_named(block):
    with pytest.raises(ModelRequestError, match=r"video|docx|bmp|s3://"):
        request_of([user(block)])


def test_signed_thoughts_go_back_and_others_do_not():
    history = [
        user("hi"),
        assistant(thought("mine", sign("mine")), thought("unsigned"), thought("theirs", "gemini:abc"), "Hello."),
        user("and?"),
    ]
    request = accepted(request_of(history))
    assert [block["type"] for block in request["messages"][1]["content"]] == ["thinking", "text"]


def test_redacted_thoughts_go_back_as_they_came():
    history = [
        user("hi"),
        assistant({"reasoningContent": {"redactedContent": b"redacted:x"}}, "Hello."),
        assistant({"reasoningContent": {"redactedContent": b"\xff\xfe"}}, "Bedrock said this."),
        user("and?"),
    ]
    content = accepted(request_of(history))["messages"][1]["content"]
    assert content[0] == {"type": "redacted_thinking", "data": "redacted:x"}
    assert [block["type"] for block in content] == ["redacted_thinking", "text", "text"]


def test_half_a_turn_of_another_model_is_continued_without_thinking():
    thinking = {"type": "enabled", "budget_tokens": 1024}
    foreign = [user("hi"), assistant(call()), user(result())]
    assert accepted(request_of(foreign, thinking=thinking))["thinking"] == {"type": "disabled"}
    own = [user("hi"), assistant(thought("so", sign("so")), call()), user(result())]
    assert accepted(request_of(own, thinking=thinking))["thinking"] == thinking


def test_cache_points_mark_the_block_before_them():
    history = [user("a long text", {"cachePoint": {"type": "default", "ttl": "1h"}}, "a question")]
    request = accepted(request_of(history, system=[{"text": "Be kind."}, {"cachePoint": {"type": "default"}}]))
    assert request["system"] == [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    marked, plain = request["messages"][0]["content"]
    assert marked["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert "cache_control" not in plain


def test_a_thought_before_a_cache_point_is_not_marked():
    point = {"cachePoint": {"type": "default"}}
    history = [user("hi"), assistant("Well.", thought("so", sign("so")), point), user("and?")]
    text, thinking = accepted(request_of(history))["messages"][1]["content"]
    assert "cache_control" in text
    assert "cache_control" not in thinking


def test_of_too_many_cache_points_the_newest_are_kept():
    point = {"cachePoint": {"type": "default"}}
    history = [user(f"{number}", point) for number in range(6)]
    request = accepted(request_of(history, system=[{"text": "Be kind."}, point]))
    blocks = [block for turn in request["messages"] for block in turn["content"]]
    assert ["cache_control" in block for block in blocks] == [False, False, False, True, True, True]
    assert "cache_control" in request["system"][0]


def test_tools_of_the_agent_stand_beside_those_of_the_parameters():
    spec = {"name": "weather", "description": "Tells", "inputSchema": {"json": {"properties": {}}}}
    search = {"type": "web_search_20250305", "name": "web_search"}
    request = accepted(request_of([user("hi")], [spec], tools=[search], tool_choice={"type": "auto"}))
    assert request["tools"] == [
        {"name": "weather", "description": "Tells", "input_schema": {"type": "object", "properties": {}}},
        search,
    ]
    assert request["tool_choice"] == {"type": "auto"}


TEXTS = st.text(alphabet=string.ascii_letters + " \n", max_size=8)
IDS = st.text(alphabet="ab.:-_", min_size=1, max_size=3)
POINTS = st.just({"cachePoint": {"type": "default"}})
PLAIN = st.one_of(TEXTS.map(lambda text: {"text": text}), POINTS)
THOUGHTS = st.one_of(
    TEXTS.map(lambda text: thought(text, sign(text))),
    TEXTS.map(thought),
    TEXTS.map(lambda text: thought(text, "no:64")),
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
        messages.append(assistant(*blocks, *[call(key) for key in keys]))
        if keys:
            order = draw(st.permutations(keys))
            messages.append(user(*draw(st.lists(PLAIN, max_size=2)), *[result(key) for key in order]))
    return [*messages, user("and now?")]


@settings(max_examples=150, deadline=None)
@given(history=histories(), thinking=st.booleans())
def test_every_history_of_an_agent_is_accepted(history, thinking):
    params = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if thinking else {}
    before = json.dumps(history)
    accepted(request_of(history, system=[{"text": "Be kind."}, {"cachePoint": {"type": "default"}}], **params))
    assert json.dumps(history) == before
