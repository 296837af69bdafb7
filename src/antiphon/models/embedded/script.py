"""What a script is made of: answers for a model that answers in turns, steps for one that talks live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from antiphon.content import Messages, ToolUse
from antiphon.events import OutputEvent, Word
from antiphon.models.base import ModelStopReason

ScriptedCall = ToolUse | tuple[str, Mapping[str, Any]]
"""A call of a tool: whole, or its name and input, and then the model numbers it (`call-1`, `call-2`, ...)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of a model that answers in turns.

    Attributes:
        text: What it writes, streamed word by word.
        tool_uses: The tools it calls, after the text.
        reasoning: What it thinks, before the text.
        stop_reason: Why it ends; left out: `tool_use` where it calls tools, else `end_turn`.
        usage: Tokens as `{"inputTokens", "outputTokens", "totalTokens"}`; left out: words are counted.
        redact_user: Replaces the user's latest message, at the end of the answer.
        redact_answer: Replaces this answer, at its end.
        pause_after_words: Wait for `until` after that many words of the text; 0 waits before the first one.
        until: What the pause waits for.
        error: Raised instead of going on after `error_after_words` words.
        error_after_words: Where `error` is raised.
    """

    text: str = ""
    tool_uses: Sequence[ScriptedCall] = ()
    reasoning: str = ""
    stop_reason: ModelStopReason | None = None
    usage: Mapping[str, Any] | None = None
    redact_user: str | None = None
    redact_answer: str | None = None
    pause_after_words: int | None = None
    until: asyncio.Event | None = None
    error: Exception | None = None
    error_after_words: int = 0


PlainAnswer = str | Answer | Exception
ScriptedAnswer = PlainAnswer | Callable[[Messages], PlainAnswer]
"""One entry of a turn-based script: a text, an `Answer`, an error to raise, or what makes one of these of a history."""


@dataclass(frozen=True, slots=True)
class Say:
    """The model speaks: one response, with sound and a transcript.

    Attributes:
        text: The words.
        response_id: The response's id; left out: `response-1`, `response-2`, ...
        words_per_second: How fast it speaks, each word as long as the others; left out: the mouth's own pace.
        words: Exact words with their times, instead of `words_per_second`.
        real_time: Whether sound comes at the speed of the clock; else all at once, as some providers do.
        barge_in_at_ms: Cut the response (by a `BidiBargeInEvent`) when that much of it could have been played. What is
            later is not sent, unless it was sent already.
        start_event: Whether a `BidiResponseStartEvent` comes first; else only the fields carry the response's id.
        stop_events: Whether the stop events come when it was cut.
        last: Whether the response ends here; else a later step may go on with its id.
        transcript: Whether the words come as text, too.
        word_times: Whether the transcript's deltas carry the words' times.
        sound: Whether sound comes.
    """

    text: str
    response_id: str | None = None
    words_per_second: float | None = field(default=None, kw_only=True)
    words: Sequence[Word] | None = field(default=None, kw_only=True)
    real_time: bool = field(default=True, kw_only=True)
    barge_in_at_ms: float | None = field(default=None, kw_only=True)
    start_event: bool = field(default=True, kw_only=True)
    stop_events: bool = field(default=True, kw_only=True)
    last: bool = field(default=True, kw_only=True)
    transcript: bool = field(default=True, kw_only=True)
    word_times: bool = field(default=True, kw_only=True)
    sound: bool = field(default=True, kw_only=True)


@dataclass(frozen=True, slots=True)
class Hear:
    """The user speaks: a transcript that starts now, whose words come `late_s` seconds later, or `never`.

    Attributes:
        text: The words, each one delta.
        late_s: Seconds between the start event and the words; the script goes on meanwhile.
        never: Only the start event comes.
        content_id: Left out: `heard-1`, `heard-2`, ...
    """

    text: str
    late_s: float = field(default=0.0, kw_only=True)
    never: bool = field(default=False, kw_only=True)
    content_id: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Write:
    """The model writes text, a word a delta, as a response of its own when `response_id` is given."""

    text: str
    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """The model thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class CallTools:
    """The model calls tools, all in one event."""

    calls: Sequence[ScriptedCall]


@dataclass(frozen=True, slots=True)
class BargeIn:
    """The user speaks over the model; left out, `response_id` is the latest response's."""

    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """`receive()` raises; the connection is over."""

    error: Exception


@dataclass(frozen=True, slots=True)
class End:
    """`receive()` ends; the connection is over."""


@dataclass(frozen=True, slots=True, init=False)
class Expire:
    """`receive()` raises `ConnectionTimeoutError`; the later steps belong to the next connection.

    Attributes:
        restart_config: What the error carries for the restart.
    """

    restart_config: Mapping[str, Any]

    def __init__(self, **restart_config: Any) -> None:
        object.__setattr__(self, "restart_config", restart_config)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens are accounted for."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, init=False)
class Emit:
    """These events, as they are."""

    events: tuple[OutputEvent, ...]

    def __init__(self, *events: OutputEvent) -> None:
        object.__setattr__(self, "events", events)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing for a while, on the model's clock."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Until:
    """Wait for something.

    Attributes:
        what: `text` (a message with text or an image), `audio`, `tool_result` (one per result), `truncate`, or an
            event. Each thing sent is waited for once, however early it came; one wait for `audio` uses up all sound so far.
        count: How many.
    """

    what: Literal["text", "audio", "tool_result", "truncate"] | asyncio.Event
    count: int = 1


@dataclass(frozen=True, slots=True)
class GoAway:
    """The provider says that it will end the connection."""

    time_left_s: float = 10.0


Step = Say | Hear | Write | Reason | CallTools | BargeIn | Fail | End | Expire | Usage | Emit | Wait | Until | GoAway
"""One step of a live script."""


def numbered_calls(calls: Sequence[ScriptedCall], first: int) -> list[ToolUse]:
    """The calls, each with an id: those without one are numbered from `first` on by their place."""
    numbered: list[ToolUse] = []
    for index, call in enumerate(calls):
        if isinstance(call, tuple):
            name, arguments = call
            numbered.append({"toolUseId": f"call-{first + index}", "name": name, "input": dict(arguments)})
        else:
            numbered.append(call)
    return numbered
