from __future__ import annotations

import json
from copy import deepcopy
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, create_model

from antiphon.content import Messages, ToolSpec
from antiphon.models.embedded.mind import Decision, decide
from antiphon.models.embedded.talk import count, say_result, story


def spec(name: str, description: str, **fields: Any) -> ToolSpec:
    schema = create_model(name, **fields).model_json_schema()
    return {"name": name, "description": description, "inputSchema": {"json": schema}}


LIGHT = spec(
    "set_light",
    "Turn the light of a room on or off.",
    room=(Literal["kitchen", "bedroom", "living room"], ...),
    on=(bool, ...),
)
WEATHER = spec("get_weather", "Weather forecast for a city.", city=(str, ...))
BOOK = spec(
    "book_table",
    "Book a table.\n\nExamples:\n    please book a table for two at seven o'clock\n    reserve a place for four",
    people=(Annotated[int, Field(ge=1, le=12)], ...),
    time=(str, ...),
)
ALARM = spec(
    "set_alarm",
    "Set an alarm clock.",
    hour=(Annotated[int, Field(ge=0, le=23)], ...),
    label=(Literal["work", "gym", "tea"], "work"),
)
ITEM = spec("add_item", "Add something to the shopping list.", item=(str, ...))
MESSAGE = spec("send_message", "Send a text message to a person.", recipient=(str, ...), message=(str, ...))
CLOCK = spec("get_time", "The time of day.")
TOOLS = [LIGHT, WEATHER, BOOK, ALARM, ITEM, MESSAGE, CLOCK]

UNRELATED = [
    "my grandmother bakes excellent bread on sundays",
    "the train to berlin was late yesterday",
    "I read a good book yesterday",
    "that is a nice table",
    "I like the light of the morning",
    "the gym was closed yesterday",
    "the weather was nice when I was a child",
    "my brother works in a kitchen in paris",
    "I bought a table for two hundred euros",
    "light travels faster than sound",
    "did you turn on the kitchen lights",
    "is the kitchen light on",
    "don't turn on the kitchen lights",
    "purple elephants dance quietly",
    "one two three",
]


def user(text: str) -> Any:
    return {"role": "user", "content": [{"text": text}]}


def assistant(text: str) -> Any:
    return {"role": "assistant", "content": [{"text": text}]}


def talk_through(*sentences: str, tools: list[ToolSpec] = TOOLS) -> Decision:
    """The decision after the last sentence of a talk."""
    history: Messages = []
    decision = Decision()
    for sentence in sentences:
        history.append(user(sentence))
        decision = decide(history, tools)
        history.append(assistant(decision.text or "(calls)"))
    return decision


@pytest.mark.parametrize(
    ("sentence", "calls"),
    [
        ("turn on the kitchen lights please", [("set_light", {"room": "kitchen", "on": True})]),
        ("turn the bedroom lamp off", [("set_light", {"room": "bedroom", "on": False})]),
        ("Switch off the lights in the living room.", [("set_light", {"room": "living room", "on": False})]),
        ("what is the weather in paris tomorrow", [("get_weather", {"city": "Paris"})]),
        ("What's the weather like in New York?", [("get_weather", {"city": "New York"})]),
        ("weather London", [("get_weather", {"city": "London"})]),
        ("forecast for Berlin", [("get_weather", {"city": "Berlin"})]),
        ("please book a table for two at seven o'clock", [("book_table", {"people": 2, "time": "07:00"})]),
        ("reserve a place for four at half past eight", [("book_table", {"people": 4, "time": "08:30"})]),
        ("I'd like a table for six people at 19:30", [("book_table", {"people": 6, "time": "19:30"})]),
        ("set an alarm for seven for work", [("set_alarm", {"hour": 7, "label": "work"})]),
        ("please wake me at six for the gym", [("set_alarm", {"hour": 6, "label": "gym"})]),
        ("alarm at five label tea", [("set_alarm", {"hour": 5, "label": "tea"})]),
        ("wake me up at 7 pm", [("set_alarm", {"hour": 19})]),
        ("add milk to the shopping list", [("add_item", {"item": "milk"})]),
        (
            "send a message to Bob saying I will be late",
            [("send_message", {"recipient": "Bob", "message": "I will be late"})],
        ),
        ("what time is it", [("get_time", {})]),
    ],
)
def test_a_wish_calls_its_tool_with_what_the_words_say(sentence, calls):
    assert list(decide([user(sentence)], TOOLS).calls) == calls


@pytest.mark.parametrize("sentence", UNRELATED)
def test_what_fits_no_tool_runs_none_and_is_answered(sentence):
    decision = decide([user(sentence)], TOOLS)
    assert decision.calls == ()
    assert decision.text
    assert decision.ask is None


@pytest.mark.parametrize("sentence", UNRELATED)
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool["name"])
def test_it_runs_none_either_where_there_is_only_one_tool(sentence, tool):
    assert decide([user(sentence)], [tool]).calls == ()


def test_an_answer_says_what_was_heard_and_what_can_be_done():
    decision = decide([user("Purple elephants dance quietly.")], [LIGHT, CLOCK])
    assert decision.text == (
        'I heard: "Purple elephants dance quietly". I cannot help with that. '
        "I can set light and get time. I can also tell a story and count."
    )


def test_two_wishes_in_a_sentence_are_two_calls():
    decision = decide([user("turn on the kitchen light and tell me the weather in rome")], TOOLS)
    assert list(decision.calls) == [
        ("set_light", {"room": "kitchen", "on": True}),
        ("get_weather", {"city": "Rome"}),
    ]


def test_two_values_of_a_choice_are_two_calls():
    decision = decide([user("turn on the kitchen and bedroom lights")], TOOLS)
    assert [call[1]["room"] for call in decision.calls] == ["kitchen", "bedroom"]


def test_what_is_missing_is_asked_for_and_the_answer_completes_the_call():
    assert talk_through("book a table").text == "For how many people?"
    assert talk_through("book a table", "two").text == "At what time?"
    done = talk_through("book a table", "two", "at eight in the evening")
    assert done.calls == (("book_table", {"people": 2, "time": "20:00"}),)


def test_an_answer_may_say_more_than_was_asked():
    assert talk_through("book a table", "four people at noon").calls == (
        ("book_table", {"people": 4, "time": "12:00"}),
    )


def test_a_value_out_of_range_is_asked_for_again():
    again = talk_through("book a table", "twenty")
    assert again.text == "It must be between 1 and 12. For how many people?"
    assert talk_through("book a table", "twenty", "three").text == "At what time?"
    assert talk_through("set an alarm for thirty").text == "It must be between 0 and 23. At what hour?"


def test_an_answer_that_is_none_is_asked_for_again():
    assert talk_through("book a table", "banana").text == "I did not get that. For how many people?"
    assert talk_through("book a table", "banana", "two").text == "At what time?"


def test_a_question_can_be_left_for_something_else():
    assert talk_through("book a table", "what is the weather in oslo").calls == (("get_weather", {"city": "Oslo"}),)
    assert talk_through("book a table", "never mind").text == "All right."


def test_a_question_of_which_only_the_beginning_was_heard_still_stands():
    history: Messages = [user("book a table"), assistant("For how"), user("two")]
    assert decide(history, TOOLS).text == "At what time?"


def test_a_choice_and_a_switch_are_asked_for():
    assert talk_through("turn on the lights").text == "Which room: kitchen, bedroom or living room?"
    assert talk_through("turn on the lights", "the kitchen").calls == (("set_light", {"room": "kitchen", "on": True}),)
    assert talk_through("turn the light in the bedroom").text == "On or off?"
    assert talk_through("turn the light in the bedroom", "off please").calls[0][1]["on"] is False


def test_a_result_is_told_in_a_sentence():
    call: Any = {"toolUse": {"toolUseId": "c1", "name": "get_weather", "input": {"city": "Oslo"}}}
    result: Any = {"toolUseId": "c1", "status": "success", "content": [{"text": "It is sunny in Oslo"}]}
    history: Messages = [
        user("weather in oslo"),
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"toolResult": result}]},
    ]
    assert decide(history, TOOLS) == Decision(text="It is sunny in Oslo.")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([{"text": "ok"}], "Done."),
        ([{"text": "42"}], "The answer is 42."),
        ([{"text": "true"}], "Done."),
        ([], "Done."),
        ([{"json": {"sky": "clear", "wind_speed": 3}}], "Get weather: sky clear and wind speed 3."),
        ([{"text": '["a", "b", "c"]'}], "Get weather: a, b and c."),
        ([{"json": []}], "There is nothing."),
        ([{"image": {}}], "Get weather gave something that I cannot read out."),
    ],
)
def test_results_of_every_form_can_be_spoken(content, sentence):
    assert say_result({"toolUseId": "c", "status": "success", "content": content}, "get_weather") == sentence


def test_a_failed_call_is_told_as_one():
    result: Any = {"toolUseId": "c", "status": "error", "content": [{"text": "no such city"}]}
    assert say_result(result, "get_weather") == "Sorry, get weather did not work. No such city."


def test_small_talk_needs_no_tool():
    assert talk_through("hello").text == "Hello! What can I do for you?"
    assert talk_through("Good morning!").text == "Good morning! What can I do for you?"
    assert talk_through("thanks a lot").text == "You are welcome."
    assert talk_through("what can you do", tools=[]).text == "I can tell a story and count. I have no tools."
    assert talk_through("[inaudible]").text == "I heard you, but I could not make out the words."
    assert talk_through("tell me a short story about a dragon").text == story("dragon")
    assert talk_through("count to five").text == "one, two, three, four, five."


def test_counting_has_a_bound():
    assert len(count(10_000).split(", ")) == 100
    assert count(1, 3) == "three, two, one."


def test_going_on_goes_on_where_the_listener_was():
    whole = story("cat")
    heard = whole[: whole.index("listened")].strip()
    history: Messages = [user("tell me a story about a cat"), assistant(heard), user("go on")]
    rest = decide(history, TOOLS).text
    assert f"{heard} {rest}" == whole
    again = decide([*history, assistant(rest[:30].strip()), user("continue")], TOOLS).text
    assert rest.startswith(rest[:30].strip())
    assert rest.endswith(again)


def test_the_last_words_can_be_repeated():
    assert talk_through("hello", "say that again").text == "Hello! What can I do for you?"
    assert talk_through("say that again").text == "I have not said anything yet."


def test_a_picture_is_not_seen():
    picture: Any = {"image": {"format": "png", "source": {"bytes": b"x"}}}
    assert "cannot see" in decide([{"role": "user", "content": [picture]}], TOOLS).text


def test_a_tool_that_needs_what_cannot_be_said_is_left_alone():
    tool = spec("draw_graph", "Draw a graph.", edges=(dict[str, int], ...))
    assert decide([user("draw a graph")], [tool]).calls == ()


def test_examples_of_a_tool_make_it_known():
    tool = spec("x17", "Internal.\n\nExamples:\n    open the garage\n    let me drive in")
    assert decide([user("please open the garage")], [tool]).calls == (("x17", {}),)
    assert decide([user("the garage of my uncle is full")], [tool]).calls == ()


VOCABULARY = """turn on off the kitchen light weather in paris book a table for two at seven o'clock not half past to yes no
go stop on 7:30 twenty five story about count message that " . , ? banana"""
words = st.lists(st.sampled_from(VOCABULARY.split()), max_size=9).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(words, st.text(max_size=20)), min_size=1, max_size=4))
def test_whatever_is_said_gives_one_decision_that_depends_on_the_history_only(sentences):
    history: Messages = []
    for sentence in sentences:
        history.append(user(sentence))
        before = deepcopy(history)
        decision = decide(history, TOOLS)
        assert history == before
        assert decide(before, deepcopy(TOOLS)) == decision
        assert bool(decision.text) != bool(decision.calls)
        for name, values in decision.calls:
            [tool] = [tool for tool in TOOLS if tool["name"] == name]
            assert set(tool["inputSchema"]["json"].get("required", [])) <= set(values)
            json.dumps(values)
        history.append(assistant(decision.text or "(calls)"))
