"""Whatever a model says, the session that remembers it can be opened again: law 1, on the real agents."""

import asyncio
import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import Agent, BidiAgent, Snapshot, tool
from antiphon.conversation.repair import problems
from antiphon.errors import AntiphonError
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiAudioStopEvent,
    BidiBargeInEvent,
    BidiReasoningDeltaEvent,
    BidiReasoningStopEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiTextDeltaEvent,
    BidiTextStartEvent,
    BidiTextStopEvent,
    BidiToolUseBlocksEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
    BidiUsageEvent,
    Word,
)
from antiphon.models import Model
from antiphon.session import SnapshotSessionManager
from antiphon.storage import InMemoryStorage
from antiphon.testing import ScriptedBidiModel, ScriptedModel, VirtualClock

texts = st.one_of(
    st.sampled_from(["", " ", "\n", "Hello", "Hello there.", "\ud800", "a\udfffb", "\x00", "🎧", "{", "NaN"]),
    st.text(max_size=6),
)
ids = st.one_of(st.sampled_from(["", " ", "t", "t-2", "t:1", "call-1", "\ud800", "x" * 90]), st.text(max_size=4))
names = st.one_of(
    st.sampled_from(["", " ", "note", "fail", "set light", "päper", "\ud800", "x" * 90]), st.text(max_size=4)
)


@tool
def note(words: str = "") -> str:
    """Note words."""
    return words


@tool
def fail() -> str:
    """Fail in an odd way."""
    raise ValueError("odd \ud800 words")


def accepted_again(agent, make):
    """The agent's snapshot, after it was taken twice, through bytes and into another agent."""
    assert problems(agent.messages) == []
    fields = {"preset": "session", "include": ["system_prompt"]}
    one, two = agent.take_snapshot(**fields), agent.take_snapshot(**fields)
    assert one.data == two.data
    stored = one.to_json()
    again = Snapshot.from_json(stored)
    assert again.to_json() == stored
    other = make()
    other.load_snapshot(again)
    assert other.take_snapshot(**fields).data == one.data
    assert json.loads(other.take_snapshot(**fields).to_json())["data"] == json.loads(stored)["data"]


class HostileModel(Model):
    """Streams whatever events it is given, one list a request; a string among them cancels the agent with that word."""

    def __init__(self, answers):
        self._answers = list(answers)
        self.cancel = None

    def get_config(self):
        return {}

    def update_config(self, **config):
        pass

    async def stream(self, messages, tool_specs=None, system_prompt=None, *, model_state=None, **kwargs):
        assert problems(messages) == []
        if not self._answers:
            yield {"messageStop": {"stopReason": "end_turn"}}
            return
        for event in self._answers.pop(0):
            if isinstance(event, str):
                self.cancel(message=event)
            else:
                yield event


def pieces(text, size):
    return [text[at : at + size] for at in range(0, len(text), size)]


json_texts = st.one_of(
    st.sampled_from(
        ["", "{}", '{"words": "x"}', '{"words": NaN}', '{"a": 1e999}', "[1]", "null", "{", '{"a": "\\ud800"}', "\ud800"]
    ),
    st.just('{"a":' * 195 + "1" + "}" * 195),
    st.just("[" * 5000),
    st.just('{"n": 36893488147419103232}'),
    st.text(max_size=5),
)


@st.composite
def blocks(draw):
    kind = draw(st.sampled_from(["text", "tool", "reasoning", "redacted", "redact"]))
    if kind == "text":
        return [{"contentBlockDelta": {"delta": {"text": draw(texts)}}}, {"contentBlockStop": {}}]
    if kind == "reasoning":
        delta = draw(
            st.sampled_from(
                [{"text": ""}, {"text": "so"}, {"signature": "\ud800"}, {"text": "\ud800", "signature": "s"}]
            )
        )
        return [{"contentBlockDelta": {"delta": {"reasoningContent": delta}}}]
    if kind == "redacted":
        return [{"contentBlockDelta": {"delta": {"reasoningContent": {"redactedContent": b"\x00"}}}}]
    if kind == "redact":
        role = draw(st.sampled_from(["User", "Assistant"]))
        return [{"redactContent": {f"redact{role}ContentMessage": draw(texts)}}]
    use = draw(st.fixed_dictionaries({}, optional={"toolUseId": ids, "name": names, "signature": st.just("\ud800")}))
    deltas = [{"contentBlockDelta": {"delta": {"toolUse": {"input": piece}}}} for piece in pieces(draw(json_texts), 40)]
    return [{"contentBlockStart": {"start": {"toolUse": use}}}, *deltas, {"contentBlockStop": {}}]


reasons = st.sampled_from(
    ["tool_use", "tool_use", "end_turn", "max_tokens", "content_filtered", "stop_sequence", "nonsense", None]
)


@st.composite
def answers(draw):
    events = [event for block in draw(st.lists(blocks(), max_size=4)) for event in block]
    if draw(st.integers(0, 9)) == 0:
        events.insert(draw(st.integers(0, len(events))), draw(texts))
    reason = draw(reasons)
    return events if reason is None else [*events, {"messageStop": {"stopReason": reason}}]


@settings(max_examples=150)
@given(st.lists(answers(), min_size=1, max_size=4))
def test_what_a_model_that_answers_says_can_be_saved_and_loaded(script):
    async def talk():
        storage = InMemoryStorage()

        def make(script=()):
            manager = SnapshotSessionManager("s", storage=storage)
            return Agent(HostileModel(script), tools=[note, fail], session_manager=manager)

        agent = make(script)
        agent.model.cancel = agent.cancel
        for prompt in ("Hello", "And then?"):
            with suppress(AntiphonError):  # an answer that broke off, or was cut by its limit
                await agent.invoke_async(prompt)
            accepted_again(agent, lambda: Agent(ScriptedModel([]), tools=[note]))
        restored = make()
        assert restored.messages == agent.messages
        await restored.invoke_async("Go on")
        assert problems(restored.messages) == []

    asyncio.run(talk())


numbers = st.sampled_from([0.0, 100.0, 250.0, -5.0, float("nan"), float("inf"), 1e300])
inputs = st.one_of(
    st.sampled_from(
        [{}, {"words": "x"}, {"words": float("nan")}, {"n": 2**70}, {"a": "\ud800"}, {3: 4}, {"a": {1}}, "{}"]
    ),
    st.sampled_from([None, [1], b"x", object()]),
)
uses = st.one_of(
    st.fixed_dictionaries({}, optional={"toolUseId": st.one_of(ids, st.none()), "name": names, "input": inputs}),
    st.fixed_dictionaries({"toolUseId": st.just("t"), "name": st.just("note"), "input": st.just({"words": "x"})}),
    st.sampled_from([None, "note", 5]),
)
words = st.lists(st.builds(Word, texts, numbers, numbers), max_size=2).map(tuple)
contents = st.sampled_from(["", "a", "b", "\ud800"])
roles = st.sampled_from(["user", "assistant"])
responses = st.sampled_from(["", "r1", "r2", "\ud800"])


def event(kind, **fields):
    return st.builds(kind, **fields)


live_events = st.one_of(
    event(BidiResponseStartEvent, response_id=responses),
    event(BidiResponseStopEvent, response_id=responses),
    event(BidiTranscriptStartEvent, content_id=contents, role=roles),
    event(BidiTranscriptDeltaEvent, content_id=contents, role=roles, delta=texts, words=words),
    event(BidiTranscriptStopEvent, content_id=contents, role=roles),
    event(BidiTextStartEvent, content_id=contents),
    event(BidiTextDeltaEvent, content_id=contents, delta=texts),
    event(BidiTextStopEvent, content_id=contents),
    event(BidiReasoningDeltaEvent, content_id=contents, delta=texts),
    event(BidiReasoningStopEvent, content_id=contents),
    event(BidiAudioDeltaEvent, audio=st.sampled_from([b"", b"\0", b"\0\0" * 2400]), response_id=responses),
    event(BidiAudioStopEvent, response_id=responses),
    event(BidiBargeInEvent, response_id=responses),
    event(BidiUsageEvent, input_tokens=st.just(-1)),
    event(BidiToolUseBlocksEvent, tool_uses=st.lists(uses, max_size=3)),
    event(BidiToolUseBlocksEvent, tool_uses=st.lists(uses, min_size=1, max_size=3)),
    st.sampled_from([0.05, 0.5, 3.0]),  # time passes
)


@settings(max_examples=100)
@given(st.lists(live_events, max_size=12), st.booleans())
def test_what_a_live_model_says_can_be_saved_and_loaded(script, listened):
    async def talk():
        clock, storage = VirtualClock(), InMemoryStorage()

        def make():
            model = ScriptedBidiModel(clock=clock)
            manager = SnapshotSessionManager("s", storage=storage, clock=clock)
            return model, manager, BidiAgent(model, tools=[note, fail], session_manager=manager, clock=clock)

        model, manager, agent = make()

        async def listen():
            async for _ in agent.receive():
                pass

        await agent.start()
        async with asyncio.TaskGroup() as group:
            if listened:
                group.create_task(listen())
            for step in script:
                if isinstance(step, float):
                    await clock.sleep(step)
                    accepted_again(agent, lambda: BidiAgent(ScriptedBidiModel()))
                else:
                    model.feed(step)
            await clock.sleep(0.5)
            await agent.stop()
        assert not manager.health.behind, manager.health.last_error
        accepted_again(agent, lambda: BidiAgent(ScriptedBidiModel()))
        _, _, restored = make()
        assert restored.messages == agent.messages
        async with restored:
            await restored.send("Go on")
        assert problems(restored.messages) == []

    asyncio.run(talk())
