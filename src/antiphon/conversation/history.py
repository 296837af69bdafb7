"""The conversation of a live call: what was said, in the order in which it was said.

Things begin in one order and end in another: a user's transcript may come after the answer to it, an answer may still be
playing when the next thing is said. So whatever begins opens a *line*; lines are settled from the front only, and a settled
line is a committed message. Pure: events, reports and the time go in, effects come out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from antiphon.content import Message, ToolResult, ToolUse
from antiphon.conversation.corrections import Corrections
from antiphon.conversation.effects import Commit, Effect, Emit, Insert, Remove, Replace, Truncate
from antiphon.conversation.heard import Part, Speech
from antiphon.conversation.lines import INAUDIBLE, Line, Written, clean, inaudible
from antiphon.conversation.listening import Listening
from antiphon.conversation.playback import STALL_S
from antiphon.conversation.responses import Responses
from antiphon.events import (
    BidiAudioStartEvent,
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

__all__ = [
    "FINAL_REPORT_S",
    "INAUDIBLE",
    "STALL_S",
    "TRANSCRIPT_WAIT_S",
    "Commit",
    "Conversation",
    "Effect",
    "Emit",
    "Insert",
    "Remove",
    "Replace",
    "Truncate",
]

TRANSCRIPT_WAIT_S = 2.0
"""How long after the end of an answer the user's words may still come before they stand as inaudible."""
FINAL_REPORT_S = 0.5
"""How long after a barge-in the loudspeaker may say what it had played."""
_UNSEEN_REPORT_S = 2.0
_POLL_S = 0.05
"""How often to look whether sound was handed out, which nobody says."""
_GATHER_S = 0.25
"""How long late words are gathered before the message that stands for them is replaced."""


class Conversation:
    """The lines that are open, the responses under way, and who may speak.

    Attributes:
        mark: Lines settled so far in the life of the session (see `antiphon.conversation.journal`).
    """

    __slots__ = (
        "_changed",
        "_corrections",
        "_cuts",
        "_lines",
        "_listening",
        "_responses",
        "mark",
    )

    def __init__(self, mark: int = 0) -> None:
        self.mark = mark
        self._lines: list[Line] = []
        self._responses = Responses()
        self._corrections = Corrections()
        self._listening = Listening(self._lines, self._corrections)
        self._changed: dict[Line, float] = {}  # settled lines with new words, and when to correct their message
        self._cuts: dict[Speech, tuple[float, bool]] = {}  # by when to settle it, and whether the sink knows of it

    def said(self, messages: Sequence[Message], now: float, *, by_user: bool = True) -> list[Effect]:
        """Complete messages: what the user typed, or tool calls with their results."""
        line = Line("messages")
        line.messages = tuple(messages)
        self._lines.append(line)
        self._listening.typed(by_user=by_user)
        self._responses.end_tail()
        return self._settle(now)

    def apply(self, event: OutputEvent, now: float) -> list[Effect]:
        """An event of the model, other than sound, a barge-in, and what has no part in the history."""
        effects: list[Effect] = []
        match event:
            case BidiTranscriptDeltaEvent(role="user"):
                line = self._listening.words(event.content_id, now)
                line.text += event.delta
                self._words_came(line, now)
            case BidiTranscriptDeltaEvent():
                if self.goes_on(event):
                    return effects
                self._spoken_words(event, now)
            case BidiTranscriptStartEvent(role="user"):
                effects = self._catch_up(now, everything=True)
                self._listening.start(event.content_id, now)
            case BidiTranscriptStartEvent():
                self._responses.end_tail()
                self._open_part(event.content_id, now)
            case BidiTranscriptStopEvent(role="user"):
                effects = self._user_stop(event, now)
            case BidiTranscriptStopEvent():
                effects = self._spoken_stop(event, now)
            case BidiResponseStartEvent():
                self._begin(event.response_id, now)
            case BidiResponseStopEvent():
                self._response_stop(event.response_id, now)
            case BidiAudioStartEvent():
                self._responses.end_tail(event.response_id)
            case BidiAudioStopEvent():
                self._audio_stop(event.response_id, now)
            case BidiTextStartEvent():
                self._written_start("text", event.content_id, now)
            case BidiReasoningStartEvent():
                self._written_start("reasoning", event.content_id, now)
            case BidiTextDeltaEvent():
                self._written_words("text", event.content_id, event.delta, now)
            case BidiReasoningDeltaEvent():
                self._written_words("reasoning", event.content_id, event.delta, now)
            case BidiTextStopEvent():
                text, effects = self._written_stop("text", event.content_id, now)
                effects.append(Emit(BidiTextBlockEvent(text=text, content_id=event.content_id)))
            case BidiReasoningStopEvent():
                text, effects = self._written_stop("reasoning", event.content_id, now)
                effects.append(Emit(BidiReasoningBlockEvent(text=text, content_id=event.content_id)))
            case _:
                return effects
        return effects + self._settle(now)

    def goes_on(self, event: BidiTranscriptDeltaEvent) -> bool:
        """Take words of a transcript that has begun and is not complete: the most frequent event beside sound.

        Returns:
            Whether it was such an event. Then nothing follows from it, not even another time to look again (`due`); else
            nothing was done, and it is `apply`'s.
        """
        speech = self._responses.current
        if speech is None or event.role != "assistant" or (part := speech.open_part(event.content_id)) is None:
            return False
        part.add(event.delta, event.words)
        return True

    def speech(self, response_id: str, now: float) -> Speech:
        """The response that sound belongs to.

        An empty id means the current one; right after a barge-in, the one that was cut, until something new begins.
        """
        known = (
            self._responses.get(response_id) if response_id else self._responses.current or self._responses.tail(now)
        )
        return known if known is not None else self._begin(response_id, now, implicit=True)

    def played(self, response_id: str, ms: float, now: float) -> list[Effect]:
        """The loudspeaker has played the first `ms` of a response. What is no number is not taken."""
        speech = self._responses.get(response_id)
        if speech is None or not math.isfinite(ms):
            return []
        speech.report(ms, now)
        effects: list[Effect] = []
        if speech.cut:
            cut = self._cuts.get(speech)
            if cut is None:
                speech.cut_ms = speech.position_ms(now)
                effects += self._heard_otherwise(speech, now)
            elif cut[1]:
                effects += self._resolve(speech, now)
        return effects + self._settle(now)

    def cut(self, now: float, response_id: str = "") -> tuple[list[Effect], list[str]]:
        """The user speaks over the model: whatever was not heard yet never will be.

        Args:
            now: The time.
            response_id: What is cut: this response and those before it, not what was made later. Nothing, if it was cut
                already or heard to its end: the news is old. Everything, if it is empty or unknown.

        Returns:
            Effects, and the ids of the responses that are cut.
        """
        named = self._responses.get(response_id)
        if named is not None and _is_over(named, now):
            return [], []
        effects: list[Effect] = []
        ids: list[str] = []
        speeches = self._responses.up_to(response_id)
        for speech in speeches:
            if _is_over(speech, now):
                continue
            ids.append(speech.response_id)
            if not speech.complete:
                self._finish(speech, now, broken=True)
                self._responses.broke_off(speech, now)
            speech.silence(now)
            self._cuts[speech] = (now + _UNSEEN_REPORT_S, False)
            if speech.playback.reported_ms is None:
                effects += self._resolve(speech, now)
        self._listening.interrupt(None if named is None else speeches)
        return effects + self._settle(now), ids

    def is_old(self, response_id: str, now: float) -> bool:
        """Whether a barge-in that names this response comes too late to cut anything, while another one speaks."""
        named = self._responses.get(response_id)
        if named is None or not _is_over(named, now):
            return False
        return named.cut or any(not _is_over(speech, now) for speech in self._responses)

    def cut_seen(self, now: float) -> None:
        """Whoever plays the sound has been told of the barge-in: its next report is its last word."""
        for speech in self._cuts:
            self._cuts[speech] = (now + FINAL_REPORT_S, True)

    def disconnected(self, now: float) -> list[Effect]:
        """The connection is gone: nothing more comes of what is under way. What was handed out goes on playing."""
        for speech in self._responses:
            self._finish(speech, now, broken=True)
            for part in speech.parts:
                part.stopped = True
        self._listening.disconnected(now)
        self._responses.end_tail()
        effects = self._catch_up(now, everything=True) + self._settle(now)
        self._corrections.forget(lambda line: line.part is None and not line.key)
        return effects

    def tick(self, now: float) -> list[Effect]:
        """Time has passed."""
        effects: list[Effect] = []
        for speech, (deadline, _) in list(self._cuts.items()):
            if now >= deadline:
                effects += self._resolve(speech, now)
        return effects + self._catch_up(now) + self._settle(now)

    def close(self, now: float) -> list[Effect]:
        """The call is over: settle everything as it stands."""
        effects, _ = self.cut(now)
        for speech in list(self._cuts):
            effects += self._resolve(speech, now)
        return effects + self.disconnected(now)

    @property
    def sound_in(self) -> bool:
        """Whether sound of the user was sent since the last response began: set by whoever sends it."""
        return self._listening.sound_in

    @sound_in.setter
    def sound_in(self, value: bool) -> None:
        self._listening.sound_in = value

    @property
    def owed(self) -> bool:
        """Whether the user said something complete that no response has begun to answer."""
        return self._listening.owed

    @property
    def responding(self) -> Speech | None:
        """The response that the model is making."""
        return self._responses.current

    @property
    def at_boundary(self) -> bool:
        """Whether nobody waits for anything: no response is being made, and none is owed."""
        return self._responses.current is None and not self._listening.owed

    @property
    def open(self) -> bool:
        """Whether anything that began is not in the history yet."""
        return bool(self._lines)

    def due(self, now: float) -> float | None:
        """When `tick` should be called next, if nothing happens before; None: no need."""
        times = [deadline for deadline, _ in self._cuts.values()]
        times += self._changed.values()
        if self._lines and (head := self._lines[0].due(now)) is not None:
            times.append(head if head > now or self._lines[0].ready(now) else now + _POLL_S)
        return min(times, default=None)

    def open_lines(self, now: float) -> tuple[Message, ...]:
        """The open lines as they would be committed if the call ended now; empty content where nothing is known.

        Of tool calls that wait here with their results, the model's message (see `open_results`).
        """
        return tuple(line.unsaid() if (message := _as_heard(line, now)) is None else message for line in self._lines)

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
        """The open lines as they will be when everything made so far was heard: the history for a new connection.

        What was cut is told as far as it was heard.
        """
        messages: list[Message] = []
        for line in self._lines:
            if line.kind == "messages":
                messages += line.messages
            elif (message := _as_heard(line, None)) is not None:
                messages.append(message)
        return messages

    def _begin(self, response_id: str, now: float, *, implicit: bool = False) -> Speech:
        current = self._responses.current
        if current is not None and response_id == current.response_id:
            return current
        self._finish(current, now)
        speech = self._responses.begin(response_id, now, implicit=implicit)
        self._listening.respond(speech)
        self._responses.forget({*self._cuts, *(line.speech for line in self._lines if line.speech is not None)})
        return speech

    def _finish(self, speech: Speech | None, now: float, *, broken: bool = False) -> None:
        if speech is None or speech.complete:
            return
        speech.finish(now, broken=broken)
        if self._responses.current is speech:
            self._responses.current = None
        for line in self._lines:
            if line.answered_by is speech and line.deadline is None:
                line.deadline = now + TRANSCRIPT_WAIT_S
            if line.speech is speech and line.written and not line.closed:
                line.closed, line.interrupted = True, broken

    def _response_stop(self, response_id: str, now: float) -> None:
        self._responses.over(response_id)
        speech, current = self._responses.get(response_id), self._responses.current
        if speech is None and current is not None and (current.implicit or not response_id):
            speech = current
        self._finish(speech, now)

    def _audio_stop(self, response_id: str, now: float) -> None:
        self._responses.over(response_id)
        current = self._responses.current
        if current is not None and current.implicit and response_id in {"", current.response_id}:
            self._finish(current, now)

    def _finish_implicit(self, now: float) -> None:
        current = self._responses.current
        if current is None or not current.implicit or not all(part.stopped for part in current.parts):
            return
        if not any(line.speech is current and line.written and not line.closed for line in self._lines):
            self._finish(current, now)

    def _resolve(self, speech: Speech, now: float) -> list[Effect]:
        del self._cuts[speech]
        speech.cut_ms = speech.position_ms(now)
        spoken = speech.audio_ms or speech.parts
        told: list[Effect] = [Truncate(speech.response_id, speech.cut_ms)] if spoken else []
        return told + self._heard_otherwise(speech, now)

    def _heard_otherwise(self, speech: Speech, now: float) -> list[Effect]:
        """How much was heard turned out after its messages were committed: correct them."""
        effects: list[Effect] = []
        for line in self._corrections:
            if line.speech is speech and line.part is not None:
                effects += self._correct(line, now)
        return effects

    def _words_came(self, line: Line, now: float) -> None:
        """If the line is settled already, its message will be corrected."""
        if line in self._corrections:
            self._changed.setdefault(line, now + _GATHER_S)

    def _catch_up(self, now: float, *, everything: bool = False) -> list[Effect]:
        """Correct messages that stand for lines with new words."""
        effects: list[Effect] = []
        for line, deadline in list(self._changed.items()):
            if everything or now >= deadline:
                effects += self._correct(line, now)
        return effects

    def _correct(self, line: Line, now: float) -> list[Effect]:
        self._changed.pop(line, None)
        if line.kind == "user":
            return self._corrections.revise(line, _as_understood(line))
        # Of an answer that nobody cut, all was played when it was settled.
        cut = line.speech is not None and line.speech.cut
        return self._corrections.revise(line, _as_heard(line, now if cut else None))

    def _user_stop(self, event: BidiTranscriptStopEvent, now: float) -> list[Effect]:
        self._responses.end_tail()
        line = self._listening.stop(event.content_id, now)
        effects = self._correct(line, now)
        self._corrections.forget(lambda settled: settled is line)
        text = clean(line.text)
        return [*effects, Emit(BidiTranscriptBlockEvent(transcript=text, role="user", content_id=event.content_id))]

    def _open_part(self, content_id: str, now: float) -> Part:
        self._responses.renew(content_id)
        late = self._responses.wordless() if self._listening.answered and self._responses.current is None else None
        speech = late or self.speech("", now)
        part = Part(content_id, speech.audio_ms)
        speech.parts.append(part)
        self._lines.append(Line("spoken", content_id, speech, part))
        return part

    def _spoken_words(self, event: BidiTranscriptDeltaEvent, now: float) -> None:
        part = self._responses.part(event.content_id, now, answered=self._listening.answered)
        if part is None:
            if event.content_id:
                self._responses.end_tail()
            part = self._open_part(event.content_id, now)
        part.add(event.delta, event.words)
        if (line := self._settled_line(part)) is not None:
            self._words_came(line, now)

    def _settled_line(self, part: Part) -> Line | None:
        return self._corrections.find(lambda line: line.part is part) if part.settled else None

    def _spoken_stop(self, event: BidiTranscriptStopEvent, now: float) -> list[Effect]:
        part = self._responses.part(event.content_id, now, answered=self._listening.answered)
        effects: list[Effect] = []
        text = ""
        if part is not None:
            part.stopped = True
            if event.said is not None:
                part.correct(event.said)
            text = clean(part.text if part.account is None else part.account)
            if (line := self._settled_line(part)) is not None:
                effects = self._correct(line, now)
        self._finish_implicit(now)
        stopped = BidiTranscriptBlockEvent(transcript=text, role="assistant", content_id=event.content_id)
        return [*effects, Emit(stopped)]

    def _written_start(self, kind: Written, content_id: str, now: float) -> None:
        self._responses.end_tail()
        if self._open_written(kind, content_id) is None:
            while (line := self._unended_written(kind, content_id)) is not None:
                line.stopped = True
            self._written(kind, content_id, now)

    def _open_written(self, kind: Written, content_id: str) -> Line | None:
        for line in reversed(self._lines):
            if line.kind == kind and line.key == content_id and not line.closed:
                return line
        return None

    def _unended_written(self, kind: Written, content_id: str) -> Line | None:
        """Text whose response was over before the text was complete."""

        def wanted(line: Line) -> bool:
            return line.kind == kind and line.key == content_id and line.closed and not line.stopped

        return next((line for line in reversed(self._lines) if wanted(line)), None) or self._corrections.find(wanted)

    def _written(self, kind: Written, content_id: str, now: float) -> Line:
        line = self._open_written(kind, content_id)
        if line is None and (content_id or self._responses.current is None):
            line = self._unended_written(kind, content_id)
        if line is None:
            line = Line(kind, content_id, self.speech("", now))
            if line.speech is not None and line.speech.cut:
                line.closed = line.interrupted = True  # more of an answer that was cut
            else:
                self._lines.append(line)
        return line

    def _written_words(self, kind: Written, content_id: str, delta: str, now: float) -> None:
        line = self._written(kind, content_id, now)
        if not line.interrupted:
            line.text += delta
            self._words_came(line, now)

    def _written_stop(self, kind: Written, content_id: str, now: float) -> tuple[str, list[Effect]]:
        line = self._open_written(kind, content_id) or self._unended_written(kind, content_id)
        if line is None:
            return "", []
        line.closed = line.stopped = True
        effects = self._correct(line, now)
        self._corrections.forget(lambda settled: settled is line)
        self._finish_implicit(now)
        return clean(line.text), effects

    def _settle(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        lines = self._lines
        while lines and lines[0].ready(now):
            line = lines.pop(0)
            self.mark += 1
            if line.kind == "messages":
                self._corrections.committed(line.messages[0])
                effects.append(Commit(line.messages))
            else:
                effects += self._settle_words(line, now)
            if lines and (following := lines[0].speech) is not None:
                playback = following.playback
                playback.progress_at = max(playback.progress_at, now)  # only now is it its turn
        return effects

    def _settle_words(self, line: Line, now: float) -> list[Effect]:
        if line.kind == "user":
            message = _as_understood(line)
            may_change = self._listening.may_change(line)
        else:
            message = _as_heard(line, now)
            may_change = line.part is not None or (line.written and not line.stopped)
        if line.speech is not None and line.part is not None:
            line.part.settled = True
            if not line.speech.cut and _is_short(line, message):
                # Given up: whoever plays the rest later does not change what was heard.
                line.speech.silence(now)
                line.speech.cut_ms = line.speech.position_ms(now)
        if message is not None:
            self._corrections.committed(message)
        if may_change:
            self._corrections.add(line, message)
        return [] if message is None else [Commit((message,))]


def _as_heard(line: Line, now: float | None) -> Message | None:
    """What a line says; of an answer, what was heard of it until `now`, or all that may still be heard."""
    speech = line.speech
    if speech is None:
        return line.message(None)
    if now is None and speech.cut:
        return line.message(speech.heard_ms(speech.cut_at))
    if now is None:  # of an answer that broke off, words may have been announced whose sound never came
        return line.message(speech.audio_ms if speech.broken else None)
    return line.message(speech.heard_ms(now))


def _as_understood(line: Line) -> Message | None:
    """What the user said. Where nothing was understood of speech that was answered, or never ended, this is said."""
    message = line.message(None)
    return inaudible() if message is None and (line.answered_by is not None or not line.closed) else message


def _is_over(speech: Speech, now: float) -> bool:
    """Whether there is nothing of it to cut."""
    return speech.cut or speech.all_played(now)


def _is_short(line: Line, message: Message | None) -> bool:
    """Whether less was heard than was said."""
    if message is None:
        return line.part is not None and bool(line.part.text.strip())
    return "interrupted" in message.get("metadata", {})
