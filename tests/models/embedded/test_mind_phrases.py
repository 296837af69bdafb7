from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, create_model

from antiphon.content import ToolSpec
from antiphon.models.embedded.grammar import Choice, Grammar, Optional, Phrase, build_grammar
from antiphon.models.embedded.mind import decide
from antiphon.models.embedded.phrases import phrases


def spec(name: str, description: str, **fields: Any) -> ToolSpec:
    schema = create_model(name, **fields).model_json_schema()
    return {"name": name, "description": description, "inputSchema": {"json": schema}}


TOOLS = [
    spec("set_light", "Turn a light on or off.", room=(Literal["kitchen", "living_room"], ...), on=(bool, ...)),
    spec(
        "get_weather",
        "Weather forecast for a city.\n\nExamples: what is the weather in paris tomorrow; weather in london",
        city=(str, ...),
    ),
    spec(
        "book_table",
        "Book a table.\n\nExamples:\n    please book a table for two at seven o'clock",
        people=(Annotated[int, Field(ge=1, le=12)], ...),
        time=(str, ...),
    ),
    spec(
        "set_alarm",
        "Set an alarm.",
        hour=(Annotated[int, Field(ge=0, le=23)], ...),
        label=(Literal["work", "gym"], "work"),
    ),
]


def grammar(tools: list[ToolSpec] = TOOLS) -> Grammar:
    return build_grammar(phrases(tools))


@pytest.mark.parametrize(
    "sentence",
    [
        "turn on the kitchen lights",
        "switch the living room lamp off please",
        "what is the weather in paris tomorrow",
        "what is the weather in london tomorrow",
        "please book a table for two at seven o'clock",
        "please book a table for eight at half past six",
        "set an alarm for seven for work",
        "please wake me at six o'clock for the gym",
        "set an alarm at nine in the evening with label gym",
        "alarm for the gym at five",
        "two people",
        "at seven o'clock",
        "kitchen",
        "stop",
        "go on",
        "tell me a short story about a dragon",
        "count to twenty",
    ],
)
def test_what_one_says_to_tools_is_in_the_grammar(sentence):
    assert grammar().accepts(sentence)


@pytest.mark.parametrize(
    "sentence", ["my grandmother bakes bread", "the train was late", "set an alarm for thirty", ""]
)
def test_what_fits_no_tool_is_not(sentence):
    assert not grammar().accepts(sentence)


Said = tuple[tuple[str, str], ...]
"""Words, each with the name of the choice it comes from."""


def sayings(phrase: Phrase) -> st.SearchStrategy[Said]:
    """What can be said of a phrase."""
    parts: list[st.SearchStrategy[Said]] = []
    for part in phrase:
        match part:
            case Choice(name, options):
                parts.append(st.sampled_from(options).map(lambda word, name=name: ((name, word),)))
            case Optional(words):
                inner = st.just((("", words),)) if isinstance(words, str) else sayings(words)
                parts.append(st.one_of(st.just(()), inner))
            case _:
                parts.append(st.just((("", part),)))
    return st.tuples(*parts).map(lambda said: tuple(word for words in said for word in words))


def sentences(phrase: Phrase, tool: ToolSpec) -> st.SearchStrategy[str]:
    """The sentences of a phrase that say each parameter once: a grammar cannot forbid to say two hours."""
    parameters = set(tool["inputSchema"]["json"]["properties"])

    def says_once(said: Said) -> bool:
        names = [name for name, _ in said if name in parameters]
        return len(names) == len(set(names))

    return sayings(phrase).filter(says_once).map(lambda said: " ".join(word for _, word in said))


def of_tool(tool: ToolSpec) -> list[Phrase]:
    common = phrases([])
    required = set(tool["inputSchema"]["json"]["required"])
    # Answers to questions alone mean nothing.
    return [p for p in phrases([tool]) if p not in common and not _is_answer(p, required)]


def _is_answer(phrase: Phrase, required: set[str]) -> bool:
    return not any(isinstance(p, str) or (isinstance(p, Choice) and p.name in {"ask", "turn"}) for p in phrase)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_each_sentence_of_a_tools_phrases_is_taken_for_that_tool(data):
    tool = data.draw(st.sampled_from(TOOLS))
    sentence = data.draw(sentences(data.draw(st.sampled_from(of_tool(tool))), tool))
    decision = decide([{"role": "user", "content": [{"text": sentence}]}], [tool])
    assert all(name == tool["name"] for name, _ in decision.calls)
    assert decision.calls or (decision.ask and decision.ask.tool.name == tool["name"])


def test_the_grammar_of_many_tools_stays_small():
    tools = [{**tool, "name": f"{tool['name']}_{number}"} for number in range(10) for tool in TOOLS]
    assert len(grammar(tools).jsgf) < 400_000


@pytest.mark.parametrize(
    ("name", "description"),
    [
        ("alarm", "Set an alarm."),
        ("alarm", "Set an alarm. It rings until somebody turns it off."),
        ("wake", "Set the alarm\n\nArgs:\n    hour: When."),
    ],
)
def test_the_first_sentence_of_a_description_is_an_order_that_may_be_spoken(name: str, description: str) -> None:
    tool = spec(name, description, hour=(Annotated[int, Field(ge=0, le=23)], ...), label=(Literal["work", "gym"], ...))
    heard = grammar([tool])
    for order in ("set an alarm for seven for work", "please set the alarm at seven", "set alarm for gym"):
        assert heard.accepts(order)
        decision = decide([{"role": "user", "content": [{"text": order}]}], [tool])
        assert decision.calls or decision.ask
    assert not heard.accepts("my grandmother bakes excellent bread")


@pytest.mark.parametrize(
    "description",
    ["Weather.", "Get the weather.", "It is what one asks for when the weather is to be known."],
)
def test_a_description_that_is_no_short_order_adds_nothing_that_may_be_spoken(description: str) -> None:
    named = spec("get_weather", "", city=(Literal["rome", "paris"], ...))
    described = spec("get_weather", description, city=(Literal["rome", "paris"], ...))
    assert grammar([described]).jsgf == grammar([named]).jsgf
