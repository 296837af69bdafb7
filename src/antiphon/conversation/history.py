"""The conversation of a live call: what was said, in the order in which it was said.

Things begin in one order and end in another: a user's transcript may come after the answer to it, an answer may still be
playing when the next thing is said. So whatever begins opens a *line*; lines are settled from the front only, and a settled
line is a committed message. Pure: events, reports and the time go in, effects come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from antiphon.content import ContentBlock, Message, MessageMetadata, ToolResult, ToolUse
from antiphon.conversation.heard import Part, Speech
from antiphon.events import (
    BidiAudioStopEvent,
    BidiReasoningBlockEvent,
    BidiReasoningDeltaEvent,
    BidiReasoningStartEvent,
    BidiReasoningStopEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiTextBlockEvent,
    BidiTextDeltaEvent,
    BidiTextStartEvent,
    BidiTextStopEvent,
    BidiTranscriptBlockEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
    OutputEvent,
)

INAUDIBLE = "[inaudible]"
TRANSCRIPT_WAIT_S = 2.0
"""How long after the end of an answer the user's words may still come before they stand as inaudible."""
STALL_S = 5.0
"""How long a finished answer may make no progress towards the ear before it is taken as not heard to its end."""
FINAL_REPORT_S = 0.5
"""How long after a barge-in the loudspeaker may say what it had played."""
_UNSEEN_REPORT_S = 2.0
_KEPT = 8


@dataclass(frozen=True, slots=True)
class Commit:
    """Append these messages to the history, together."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Replace:
    """Put `new` in the place of `old`, a message that was committed earlier (known by identity)."""

    old: Message
    new: Message


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tell the model that only `played_ms` of this response were heard."""

    response_id: str
    played_ms: float


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand this event to the application."""

    event: OutputEvent


Effect = Commit | Replace | Truncate | Emit
_Kind = Literal["messages", "slot", "user", "spoken", "text", "reasoning"]


class _Line:
    """Something that began and is not in the history yet."""

    __slots__ = (
        "answered_by",
        "closed",
        "deadline",
        "interrupted",
        "key",
        "kind",
        "messages",
        "part",
        "speech",
        "text",
    )

    def __init__(self, kind: _Kind, key: str = "", speech: Speech | None = None, part: Part | None = None) -> None:
        self.kind: _Kind = kind
        self.key = key
        self.text = ""
        self.speech = speech
        self.part = part
        self.messages: tuple[Message, ...] = ()
        self.closed = False
        self.interrupted = False
        self.deadline: float | None = None
        self.answered_by: Speech | None = None

    def ready(self, now: float) -> bool:
        """Whether it can be settled."""
        match self.kind:
            case "messages":
                return True
            case "spoken":
                return self._played(now)
            case _:
                return self.closed or (self.deadline is not None and now >= self.deadline)

    def _played(self, now: float) -> bool:
        speech, part = self.speech, self.part
        assert speech is not None  # noqa: S101 - a spoken line has both
        assert part is not None  # noqa: S101
        if speech.cut:
            return speech.cut_ms is not None
        if part.stopped and part.timed and speech.position_ms(now) >= part.end_ms:
            return True
        if not speech.complete:
            return False
        return not speech.audio_ms or speech.all_played(now) or now - speech.progress_at >= STALL_S

    def due(self, now: float) -> float | None:
        """When it should be looked at again, if nothing happens before."""
        if self.kind == "spoken":
            return self._played_by(now)
        return self.deadline

    def _played_by(self, now: float) -> float | None:
        speech, part = self.speech, self.part
        assert speech is not None  # noqa: S101
        assert part is not None  # noqa: S101
        if speech.cut or not (speech.complete or part.stopped):
            return None
        stalled = speech.progress_at + STALL_S if speech.complete else None
        if speech.reported_ms is not None or speech.started_at is None:
            return stalled
        end = part.end_ms if part.timed and part.stopped else speech.audio_ms
        return max(speech.started_at + end / 1000, now + 0.05)  # what was not handed out in time is looked at again

    def message(self, ms: float | None, *, whole: bool = False) -> Message | None:
        """What it says, with the sound heard up to `ms`; None where it says nothing.

        Args:
            ms: Position in the response's sound.
            whole: Everything that was made so far, heard or not.
        """
        if self.kind == "messages":
            return self.messages[0]
        if self.kind == "user":
            return _message("user", {"text": self.text}, {"kind": "speech"}) if self.text.strip() else None
        if self.kind == "text":
            metadata: MessageMetadata = {"interrupted": True} if self.interrupted else {}
            return _message("assistant", {"text": self.text}, metadata) if self.text.strip() else None
        if self.kind == "reasoning":
            block: ContentBlock = {"reasoningContent": {"reasoningText": {"text": self.text}}}
            return _message("assistant", block, {}) if self.text.strip() else None
        if self.kind != "spoken" or self.speech is None or self.part is None:
            return None
        speech, part = self.speech, self.part
        heard = part.text if whole or ms is None else speech.heard(part, ms)
        heard = heard.strip()
        if not heard:
            return None
        metadata = {"kind": "speech", "response_id": speech.response_id}
        if heard != part.text.strip() or (speech.cut and not speech.audio_ms):
            metadata |= {"interrupted": True, "generated_text": part.text.strip()}
            if ms is not None:
                metadata["heard_ms"] = round(ms, 3)
        return _message("assistant", {"text": heard}, metadata)


def _message(role: Literal["user", "assistant"], block: ContentBlock, metadata: MessageMetadata) -> Message:
    message: Message = {"role": role, "content": [block]}
    if metadata:
        message["metadata"] = metadata
    return message


class Conversation:
    """The lines that are open, the responses under way, and who may speak.

    Attributes:
        mark: Lines settled so far in the life of the session (see `antiphon.conversation.journal`).
        sound_in: Set by whoever sends the user's sound.
        responding: Whether the model is making a response.
        owed: Whether the user said something complete that no response has begun to answer.
    """

    __slots__ = (
        "_cuts",
        "_late",
        "_lines",
        "_number",
        "_prompted",
        "_speeches",
        "mark",
        "owed",
        "responding",
        "sound_in",
    )

    def __init__(self, mark: int = 0) -> None:
        self.mark = mark
        self.sound_in = False
        self.responding: Speech | None = None
        self.owed = False
        self._prompted = False
        self._number = 0
        self._lines: list[_Line] = []
        self._speeches: dict[str, Speech] = {}
        self._late: dict[str, tuple[_Line, Message]] = {}  # inaudible for now; by content id
        self._cuts: dict[Speech, tuple[float, bool]] = {}  # by when to settle it, and whether the sink knows of it

    # ------------------------------------------------------------------ what goes in

    def said(self, messages: Sequence[Message], now: float, *, by_user: bool = True) -> list[Effect]:
        """Complete messages: what the user typed, or tool calls with their results."""
        line = _Line("messages")
        line.messages = tuple(messages)
        self._lines.append(line)
        self._prompted = True
        if by_user:
            self.owed = True
        return self._settle(now)

    def apply(self, event: OutputEvent, now: float) -> list[Effect]:
        """An event of the model, other than sound, a barge-in, and what has no part in the history."""
        effects: list[Effect] = []
        match event:
            case BidiTranscriptDeltaEvent(role="user"):
                effects = self._user_words(event, now)
            case BidiTranscriptDeltaEvent():
                if not self.goes_on(event):
                    self._spoken_part(event.content_id, now).add(event.delta, event.words)
                return effects
            case BidiTranscriptStartEvent(role="user"):
                self._user_line(event.content_id)
            case BidiTranscriptStartEvent():
                self._open_part(event.content_id, now)
            case BidiTranscriptStopEvent(role="user"):
                effects = self._user_stop(event)
            case BidiTranscriptStopEvent():
                effects = [self._spoken_stop(event, now)]
            case BidiResponseStartEvent():
                self._begin(event.response_id, now)
            case BidiResponseStopEvent():
                self._finish(self._speeches.get(event.response_id) or self.responding, now)
            case BidiAudioStopEvent():
                self._finish_implicit(now)
            case BidiTextStartEvent():
                self._written("text", event.content_id, now)
            case BidiReasoningStartEvent():
                self._written("reasoning", event.content_id, now)
            case BidiTextDeltaEvent():
                self._written("text", event.content_id, now).text += event.delta
            case BidiReasoningDeltaEvent():
                self._written("reasoning", event.content_id, now).text += event.delta
            case BidiTextStopEvent():
                effects = [
                    Emit(
                        BidiTextBlockEvent(
                            text=self._written_stop("text", event.content_id, now), content_id=event.content_id
                        )
                    )
                ]
            case BidiReasoningStopEvent():
                text = self._written_stop("reasoning", event.content_id, now)
                effects = [Emit(BidiReasoningBlockEvent(text=text, content_id=event.content_id))]
            case _:
                return effects
        return effects + self._settle(now)

    def goes_on(self, event: BidiTranscriptDeltaEvent) -> bool:
        """Take words of a transcript that has begun and is not complete: the most frequent event beside sound.

        Returns:
            Whether it was such an event. Then nothing follows from it, not even another time to look again (`due`); else
            nothing was done, and it is `apply`'s.
        """
        if event.role != "assistant" or (part := self._open_spoken_part(event.content_id)) is None:
            return False
        part.add(event.delta, event.words)
        return True

    def speech(self, response_id: str, now: float) -> Speech:
        """The response that sound belongs to; an empty id means the current one."""
        known = self._speeches.get(response_id) if response_id else self.responding
        return known if known is not None else self._begin(response_id, now, implicit=True)

    def played(self, response_id: str, ms: float, now: float) -> list[Effect]:
        """The loudspeaker has played the first `ms` of a response."""
        speech = self._speeches.get(response_id)
        if speech is None:
            return []
        speech.report(ms, now)
        effects: list[Effect] = []
        if speech.cut:
            cut = self._cuts.get(speech)
            if cut is None:
                effects += self._heard_otherwise(speech, now)
            elif cut[1]:
                effects += self._resolve(speech, now)
        return effects + self._settle(now)

    def cut(self, now: float) -> tuple[list[Effect], list[str]]:
        """The user speaks over the model: whatever was not heard yet never will be.

        Returns:
            Effects, and the ids of the responses that are cut.
        """
        effects: list[Effect] = []
        ids: list[str] = []
        for speech in list(self._speeches.values()):
            if speech.cut or speech.all_played(now) or (speech.complete and not speech.audio_ms):
                continue
            ids.append(speech.response_id)
            self._finish(speech, now)
            speech.cut = True
            self._cuts[speech] = (now + _UNSEEN_REPORT_S, False)
            if speech.reported_ms is None:
                effects += self._resolve(speech, now)
            for line in self._lines:
                if line.speech is speech and line.kind in ("text", "reasoning") and not line.closed:
                    line.closed = line.interrupted = True
        return effects + self._settle(now), ids

    def cut_seen(self, now: float) -> None:
        """Whoever plays the sound has been told of the barge-in: its next report is its last word."""
        for speech in self._cuts:
            self._cuts[speech] = (now + FINAL_REPORT_S, True)

    def disconnected(self, now: float) -> list[Effect]:
        """The connection is gone: nothing more comes of what is under way. What was handed out goes on playing."""
        for speech in list(self._speeches.values()):
            self._finish(speech, now)
        for line in self._lines:
            if line.kind in ("text", "reasoning") and not line.closed:
                line.closed = line.interrupted = True
            elif line.kind in ("user", "slot"):
                line.deadline = now
        self.owed = False
        return self._settle(now)

    def tick(self, now: float) -> list[Effect]:
        """Time has passed."""
        effects: list[Effect] = []
        for speech, (deadline, _) in list(self._cuts.items()):
            if now >= deadline:
                effects += self._resolve(speech, now)
        return effects + self._settle(now)

    def close(self, now: float) -> list[Effect]:
        """The call is over: settle everything as it stands."""
        effects, _ = self.cut(now)
        for speech in list(self._cuts):
            effects += self._resolve(speech, now)
        effects += self.disconnected(now)
        return effects + self._settle(now)

    # ------------------------------------------------------------------ what can be asked

    @property
    def at_boundary(self) -> bool:
        """Whether nobody waits for anything: no response is being made, and none is owed."""
        return self.responding is None and not self.owed

    @property
    def open(self) -> bool:
        """Whether anything that began is not in the history yet."""
        return bool(self._lines)

    def due(self, now: float) -> float | None:
        """When `tick` should be called next, if nothing happens before; None: no need."""
        times = [deadline for deadline, _ in self._cuts.values()]
        if self._lines and (head := self._lines[0].due(now)) is not None:
            times.append(head)
        return min(times, default=None)

    def open_lines(self, now: float) -> tuple[Message, ...]:
        """The open lines as they would be committed if the call ended now; empty content where nothing is known.

        Of tool calls that wait here with their results, the model's message (see `open_results`).
        """
        return tuple(
            _unsaid(line) if (message := self._as_heard(line, now)) is None else message for line in self._lines
        )

    def open_results(self) -> list[tuple[ToolUse, ToolResult]]:
        """Tool calls with their results that wait behind something which began earlier."""
        return [
            (block["toolUse"], result["toolResult"])
            for line in self._lines
            if len(line.messages) > 1
            for block, result in zip(line.messages[0]["content"], line.messages[1]["content"], strict=True)
            if "toolUse" in block and "toolResult" in result
        ]

    def expected(self) -> list[Message]:
        """The open lines as they will be when everything made so far was heard: the history for a new connection."""
        messages: list[Message] = []
        for line in self._lines:
            if line.kind == "messages":
                messages += line.messages
            elif (message := line.message(line.speech.cut_ms if line.speech else None)) is not None:
                messages.append(message)
        return messages

    # ------------------------------------------------------------------ responses

    def _begin(self, response_id: str, now: float, *, implicit: bool = False) -> Speech:
        if self.responding is not None and response_id == self.responding.response_id:
            return self.responding
        self._finish(self.responding, now)
        self._number += 1
        speech = Speech(response_id or f"response-{self._number}", now, implicit=implicit)
        self._speeches[speech.response_id] = speech
        if self.sound_in and not self._prompted:
            # The user was heard, but nothing is known of the words yet: they belong here when they come.
            self._lines.append(_Line("slot"))
        for line in self._lines:
            if line.kind in ("user", "slot") and line.answered_by is None:
                line.answered_by = speech
        self.responding, self.owed, self._prompted, self.sound_in = speech, False, False, False
        self._forget()
        return speech

    def _finish(self, speech: Speech | None, now: float) -> None:
        if speech is None or speech.complete:
            return
        speech.complete = True
        speech.progress_at = now
        for part in speech.parts:
            part.stopped = True
        if self.responding is speech:
            self.responding = None
        for line in self._lines:
            if line.answered_by is speech and line.deadline is None:
                line.deadline = now + TRANSCRIPT_WAIT_S

    def _finish_implicit(self, now: float) -> None:
        speech = self.responding
        if speech is not None and speech.implicit and all(part.stopped for part in speech.parts):
            self._finish(speech, now)

    def _forget(self) -> None:
        """Keep the responses that matter: those under way and a few behind them, for reports that come late."""
        if len(self._speeches) > _KEPT:
            open_ids = {line.speech.response_id for line in self._lines if line.speech is not None}
            for key in list(self._speeches)[:-_KEPT]:
                speech = self._speeches[key]
                if key not in open_ids and speech.complete and speech not in self._cuts:
                    del self._speeches[key]
        while len(self._late) > _KEPT:
            del self._late[next(iter(self._late))]

    def _resolve(self, speech: Speech, now: float) -> list[Effect]:
        del self._cuts[speech]
        speech.cut_ms = speech.position_ms(now)
        spoken = speech.audio_ms or speech.parts
        return [Truncate(speech.response_id, speech.cut_ms)] if spoken else []

    def _heard_otherwise(self, speech: Speech, now: float) -> list[Effect]:
        """A report that came after the message was committed: correct it."""
        speech.cut_ms = speech.position_ms(now)
        effects: list[Effect] = []
        for key, (line, old) in list(self._late.items()):
            if line.speech is speech:
                new = line.message(speech.heard_ms(now))
                if new is not None and new["content"] != old["content"]:
                    effects.append(Replace(old, new))
                    self._late[key] = (line, new)
        return effects

    # ------------------------------------------------------------------ lines

    def _user_line(self, content_id: str) -> _Line:
        line = next((line for line in self._lines if line.kind == "slot"), None)
        if line is None:
            line = _Line("user")
            self._lines.append(line)
            self._prompted = self.owed = True
        line.kind, line.key = "user", content_id
        return line

    def _open_user_line(self, content_id: str) -> _Line | None:
        for line in reversed(self._lines):
            if line.kind == "user" and line.key == content_id and not line.closed:
                return line
        return None

    def _user_words(self, event: BidiTranscriptDeltaEvent, now: float) -> list[Effect]:
        if event.content_id in self._late and (late := self._late[event.content_id])[0].kind == "user":
            late[0].text += event.delta
            return []
        line = self._open_user_line(event.content_id) or self._user_line(event.content_id)
        line.text += event.delta
        return []

    def _user_stop(self, event: BidiTranscriptStopEvent) -> list[Effect]:
        late = self._late.pop(event.content_id, None)
        if late is not None and late[0].kind == "user":
            line, old = late
            new = line.message(None)
            effects: list[Effect] = [Replace(old, new)] if new is not None else []
        else:
            line = self._open_user_line(event.content_id) or self._user_line(event.content_id)
            line.closed = True
            effects = []
        return [
            *effects,
            Emit(BidiTranscriptBlockEvent(transcript=line.text, role="user", content_id=event.content_id)),
        ]

    def _open_part(self, content_id: str, now: float) -> Part:
        speech = self.speech("", now)
        part = Part(content_id)
        speech.parts.append(part)
        self._lines.append(_Line("spoken", content_id, speech, part))
        return part

    def _open_spoken_part(self, content_id: str) -> Part | None:
        for line in reversed(self._lines):
            part = line.part
            if part is not None and part.content_id == content_id and not part.stopped:
                return part
        return None

    def _spoken_part(self, content_id: str, now: float) -> Part:
        for speech in self._speeches.values():
            if speech.cut and (part := speech.part(content_id)) is not None:
                return part  # words of a cut answer: made, never heard
        return self._open_part(content_id, now)

    def _spoken_stop(self, event: BidiTranscriptStopEvent, now: float) -> Effect:
        part = self._open_spoken_part(event.content_id) or self._spoken_part(event.content_id, now)
        part.stopped = True
        self._finish_implicit(now)
        return Emit(BidiTranscriptBlockEvent(transcript=part.text, role="assistant", content_id=event.content_id))

    def _written(self, kind: Literal["text", "reasoning"], content_id: str, now: float) -> _Line:
        for line in reversed(self._lines):
            if line.kind == kind and line.key == content_id and not line.closed:
                return line
        line = _Line(kind, content_id, self.speech("", now))
        self._lines.append(line)
        return line

    def _written_stop(self, kind: Literal["text", "reasoning"], content_id: str, now: float) -> str:
        line = self._written(kind, content_id, now)
        line.closed = True
        self._finish_implicit(now)
        return line.text

    # ------------------------------------------------------------------ settling

    def _as_heard(self, line: _Line, now: float) -> Message | None:
        return line.message(line.speech.heard_ms(now) if line.speech is not None else None)

    def _settle(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        lines = self._lines
        while lines and lines[0].ready(now):
            line = lines.pop(0)
            self.mark += 1
            if line.kind == "messages":
                effects.append(Commit(line.messages))
                continue
            message = self._as_heard(line, now)
            if line.kind == "user" and message is None and (line.answered_by is not None or not line.closed):
                message = _message("user", {"text": INAUDIBLE}, {"kind": "speech"})
                if not line.closed:
                    self._late[line.key] = (line, message)
            if message is None:
                continue
            if line.kind == "spoken" and line.speech is not None and "interrupted" in message.get("metadata", {}):
                if not line.speech.cut:  # given up: whoever plays the rest later does not change what was heard
                    line.speech.cut, line.speech.cut_ms = True, line.speech.position_ms(now)
                self._late[f"{line.speech.response_id}/{line.key}"] = (line, message)
            effects.append(Commit((message,)))
        return effects


def _unsaid(line: _Line) -> Message:
    return {"role": "user" if line.kind in ("user", "slot") else "assistant", "content": []}


def committed(effects: Iterable[Effect]) -> list[Message]:
    """The messages that these effects append, in order."""
    return [message for effect in effects if isinstance(effect, Commit) for message in effect.messages]
