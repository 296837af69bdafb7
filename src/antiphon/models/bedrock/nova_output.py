"""What Nova Sonic says, as events. Pure.

The model tells each sentence three times: as text that it plans to say (`SPECULATIVE`), as sound, and, when that was said, as
text again (`FINAL`): less where the user spoke over it. All sentences of an answer are one transcript here.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from antiphon.content import ToolUse
from antiphon.errors import ModelProtocolError
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiAudioStartEvent,
    BidiAudioStopEvent,
    BidiBargeInEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiToolUseBlocksEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
    BidiUsageEvent,
    OutputEvent,
)
from antiphon.models.live import Owed, Sightings

_KEPT = 2
"""Answers whose account may still come: the last one, and the one that it cut."""
_OPEN_BLOCKS = 64
"""Blocks that may be open at the same time; those that are never ended are forgotten."""


@dataclass(slots=True)
class _Answer:
    """One answer.

    Attributes:
        planned: Its sentences as they were announced.
        said: Those of which the model says that they were said, as they were.
        begun: Whether its transcript was announced.
        over: Whether all of its sound is there, or it was cut.
        sounded: Whether there is sound of it.
        cut: Whether the user spoke over it.
        marked: Whether the mark of that came.
        accounted: Whether its transcript is complete.
        unprompted: Whether nothing is known of what it answers: words of the user that come later belong in front of it.
    """

    id: str
    planned: list[str] = field(default_factory=list[str])
    said: list[str] = field(default_factory=list[str])
    begun: bool = False
    over: bool = False
    sounded: bool = False
    cut: bool = False
    marked: bool = False
    accounted: bool = False
    unprompted: bool = False

    def expects(self, text: str) -> bool:
        """Whether `text` may be the account of the next sentence."""
        if self.accounted or len(self.said) >= len(self.planned):
            return False
        planned = " ".join(self.planned[len(self.said)].split())
        return planned.startswith(" ".join(text.split())[:12])

    @property
    def told(self) -> bool:
        """Whether the model has told all that was said: every sentence, or the one in which it was cut."""
        if len(self.said) >= len(self.planned):
            return True
        return self.cut and bool(self.said) and self.said[-1].split() != self.planned[len(self.said) - 1].split()


@dataclass(slots=True)
class _Block:
    """A piece of content between its start and its end."""

    type: str
    role: str
    stage: str = ""
    rate: int = 24000
    text: str = ""
    answer: _Answer | None = None
    calls: list[ToolUse] = field(default_factory=list[ToolUse])


class Output:
    """Makes events of what comes.

    Args:
        prompt: Names responses where the model has not named its completion.
        rate: Of the sound, where a block does not say.
        unknown: Counts what is not known.

    Attributes:
        calls: The calls that wait for a result, by id: name and input.
    """

    def __init__(self, prompt: str, rate: int, unknown: Sightings) -> None:
        self.calls: dict[str, tuple[str, Any]] = {}
        self._prompt = prompt
        self._rate = rate
        self._unknown = unknown
        self._completion = ""
        self._number = 0
        self._blocks: dict[str, _Block] = {}
        self._answers: list[_Answer] = []
        self._used = (0, 0)
        self._prompted = False
        self._owes = False

    @property
    def idle(self) -> bool:
        """Whether the model makes no answer now, and waits for no result."""
        return self._current is None and not self.calls

    @property
    def owed(self) -> Owed:
        """What answer would be missing, if the session ended now."""
        return "cut" if self._current is not None else "said" if self._owes else ""

    @property
    def has_begun(self) -> bool:
        """Whether any answer has begun."""
        return self._number > 0

    @property
    def _current(self) -> _Answer | None:
        return self._answers[-1] if self._answers and not self._answers[-1].over else None

    def take(self, event: dict[str, Any]) -> Sequence[OutputEvent]:
        """The events that one of the model's makes.

        Raises:
            ModelProtocolError: If it is not what the protocol says it is.
        """
        name = next(iter(event), "")
        body: Any = event.get(name)
        if not isinstance(body, dict):
            raise ModelProtocolError(f"the event {name!r} of Nova Sonic is no object")
        fields = cast("dict[str, Any]", body)
        try:
            match name:
                case "completionStart":
                    self._completion = str(fields.get("completionId", ""))
                    return ()
                case "contentStart":
                    return self._start(fields)
                case "textOutput":
                    return self._text(fields)
                case "audioOutput":
                    return self._audio(fields)
                case "toolUse":
                    self._tool(fields)
                    return ()
                case "contentEnd":
                    return self._end(fields)
                case "usageEvent":
                    return self._usage(fields)
                case "completionEnd":
                    return self._complete()
                case _:
                    self._unknown.note(name)
                    return ()
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise ModelProtocolError(f"the event {name!r} of Nova Sonic cannot be read: {error!r}") from error

    def _start(self, fields: dict[str, Any]) -> Sequence[OutputEvent]:
        block = _Block(str(fields["type"]), str(fields.get("role", "")), _stage(fields), self._rate)
        content_id = str(fields["contentId"])
        self._open(content_id, block)
        if block.type == "TEXT" and block.role == "USER":
            return self._listened(content_id)
        if block.type == "AUDIO":
            block.rate = int(fields.get("audioOutputConfiguration", {}).get("sampleRateHertz", self._rate))
            events, block.answer = self._answer()
            return [*events, BidiAudioStartEvent(content_id=content_id, response_id=block.answer.id)]
        return ()

    def _open(self, content_id: str, block: _Block) -> None:
        self._blocks[content_id] = block
        if len(self._blocks) > _OPEN_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
            self._unknown.note("contentStart without contentEnd")

    def prompted(self) -> None:
        """The next answer answers something that is known."""
        self._prompted = self._owes = True

    def _listened(self, content_id: str) -> list[OutputEvent]:
        """Words of the user come. They were most likely spoken now, unless an answer waits for them."""
        last = self._answers[-1] if self._answers else None
        if last is not None and last.unprompted and not last.cut:
            last.unprompted = False
            return []
        self.prompted()
        return [BidiTranscriptStartEvent(role="user", content_id=content_id)]

    def _answer(self) -> tuple[list[OutputEvent], _Answer]:
        """The answer under way, or a new one."""
        if (current := self._current) is not None:
            return [], current
        events: list[OutputEvent] = []
        while len(self._answers) >= _KEPT:
            events += _account(self._answers.pop(0))
        self._number += 1
        answer = _Answer(f"{self._completion or self._prompt}-{self._number}", unprompted=not self._prompted)
        self._prompted = self._owes = False
        self._answers.append(answer)
        return [*events, BidiResponseStartEvent(response_id=answer.id)], answer

    def _text(self, fields: dict[str, Any]) -> Sequence[OutputEvent]:
        text = str(fields["content"])
        if _says_interrupted(text):
            return self._marked()
        content_id = str(fields["contentId"])
        block = self._blocks.get(content_id)
        if block is None or block.type != "TEXT":
            self._unknown.note("textOutput without contentStart")
            return ()
        block.text += text
        if block.role == "USER":
            return [BidiTranscriptDeltaEvent(delta=text, role="user", content_id=content_id)]
        return ()

    def _audio(self, fields: dict[str, Any]) -> Sequence[OutputEvent]:
        content_id = str(fields["contentId"])
        block = self._blocks.get(content_id)
        if block is None or block.answer is None:
            self._unknown.note("audioOutput without contentStart")
            return ()
        try:
            pcm = binascii.a2b_base64(fields["content"], strict_mode=True)
        except binascii.Error as error:
            raise ModelProtocolError(f"sound of Nova Sonic is not base64: {error}") from error
        block.answer.sounded = True
        return [
            BidiAudioDeltaEvent(audio=pcm, sample_rate=block.rate, content_id=content_id, response_id=block.answer.id)
        ]

    def _tool(self, fields: dict[str, Any]) -> None:
        call: ToolUse = {
            "toolUseId": str(fields["toolUseId"]),
            "name": str(fields["toolName"]),
            "input": _arguments(fields.get("content")),
        }
        content_id = str(fields["contentId"])
        if content_id not in self._blocks:
            self._open(content_id, _Block("TOOL", "TOOL"))
        self._blocks[content_id].calls.append(call)

    def _end(self, fields: dict[str, Any]) -> Sequence[OutputEvent]:
        content_id = str(fields["contentId"])
        block = self._blocks.pop(content_id, None)
        stopped = str(fields.get("stopReason", ""))
        if block is None:
            self._unknown.note("contentEnd without contentStart")
            return ()
        events: list[OutputEvent] = []
        if block.type == "TOOL":
            return self._called(block)
        if block.type == "AUDIO" and block.answer is not None:
            events.append(BidiAudioStopEvent(content_id=content_id, response_id=block.answer.id))
            if stopped == "END_TURN":
                events += self._finish(block.answer)
        elif block.type == "TEXT" and block.role == "USER":
            events.append(BidiTranscriptStopEvent(role="user", content_id=content_id))
        elif block.type == "TEXT" and block.stage == "SPECULATIVE":
            events += self._planned(block.text)
        elif block.type == "TEXT" and block.text:
            return self._was_said(block.text, stopped)
        if stopped == "INTERRUPTED" and block.type == "AUDIO":
            events += self._interrupted(block.answer)
        return events

    def _called(self, block: _Block) -> list[OutputEvent]:
        events: list[OutputEvent] = []
        current = self._current
        if current is not None and not any(other.answer is current for other in self._blocks.values()):
            events += self._finish(current)  # what it says when it has the result is another answer
        self._owes = False
        for call in block.calls:
            self.calls[call["toolUseId"]] = call["name"], call["input"]
        return [*events, BidiToolUseBlocksEvent(tool_uses=block.calls)] if block.calls else events

    def _planned(self, text: str) -> list[OutputEvent]:
        if not text.strip():
            return []
        events, answer = self._answer()
        delta = text if not answer.planned else f" {text}"
        answer.planned.append(text)
        if not answer.begun:
            answer.begun = True
            events.append(BidiTranscriptStartEvent(content_id=answer.id))
        return [*events, BidiTranscriptDeltaEvent(delta=delta, content_id=answer.id)]

    def _was_said(self, text: str, stopped: str) -> list[OutputEvent]:
        """The model tells a sentence as it was said."""
        last = stopped == "INTERRUPTED"
        open_ones = [answer for answer in self._answers if not answer.accounted]
        answer = next((answer for answer in open_ones if answer.expects(text)), open_ones[-1] if open_ones else None)
        if answer is None:
            if not self._answers:
                self._unknown.note("FINAL without an answer")
            return self._interrupted(self._answers[-1]) if last and self._answers else []
        events = self._interrupted(answer) if last else []
        answer.said.append(text)
        if stopped == "END_TURN" and answer.told and not any(b.answer is answer for b in self._blocks.values()):
            return [*events, *self._finish(answer), *_account(answer)]
        return [*events, *(_account(answer) if answer.over and (answer.told or last) else [])]

    def _marked(self) -> list[OutputEvent]:
        """The mark of a barge-in came. It names no answer: it is the last one, unless one before it waits for its mark."""
        last = self._answers[-1] if self._answers else None
        if last is not None and not last.cut and not last.sounded:
            last = next((answer for answer in self._answers if answer.cut and not answer.marked), last)
        if last is not None:
            last.marked = True
        return self._interrupted(last)

    def _interrupted(self, answer: _Answer | None) -> list[OutputEvent]:
        """The user speaks over an answer; the model says so up to three times."""
        if answer is None or answer.cut:
            return []
        answer.cut = True
        return [BidiBargeInEvent(response_id=answer.id), *self._finish(answer)]

    def _finish(self, answer: _Answer) -> list[OutputEvent]:
        if answer.over:
            return []
        answer.over = True
        return [*(_account(answer) if answer.told else []), BidiResponseStopEvent(response_id=answer.id)]

    def _complete(self) -> list[OutputEvent]:
        events: list[OutputEvent] = []
        for answer in self._answers:
            events += [*self._finish(answer), *_account(answer)]
        return events

    def _usage(self, fields: dict[str, Any]) -> Sequence[OutputEvent]:
        delta = fields.get("details", {}).get("delta")
        if isinstance(delta, dict):
            tokens = cast("dict[str, dict[str, int]]", delta)
            details: tuple[dict[str, int], dict[str, int]] = (
                dict(tokens.get("input", {})),
                dict(tokens.get("output", {})),
            )
            used, made = sum(details[0].values()), sum(details[1].values())
        else:
            total = int(fields.get("totalInputTokens", 0)), int(fields.get("totalOutputTokens", 0))
            used, made = total[0] - self._used[0], total[1] - self._used[1]
            details = {}, {}
        self._used = int(fields.get("totalInputTokens", 0)), int(fields.get("totalOutputTokens", 0))
        if not used and not made:
            return ()
        return [
            BidiUsageEvent(
                input_tokens=used,
                output_tokens=made,
                total_tokens=used + made,
                input_token_details=details[0] or None,
                output_token_details=details[1] or None,
            )
        ]


def _account(answer: _Answer) -> list[OutputEvent]:
    """Complete the transcript of an answer: with what was said of it, where that is something else than was planned."""
    if answer.accounted:
        return []
    answer.accounted = True
    if not answer.begun:
        return []
    planned, said = " ".join(answer.planned), " ".join(answer.said)
    told = said if answer.said and said.split() != planned.split() else None
    return [BidiTranscriptStopEvent(content_id=answer.id, said=told)]


def _stage(fields: dict[str, Any]) -> str:
    """`SPECULATIVE` or `FINAL`: JSON in a text, or (some versions) an object."""
    extra = fields.get("additionalModelFields") or "{}"
    try:
        value: Any = json.loads(extra) if isinstance(extra, str) else extra
    except ValueError:
        return ""
    return str(cast("dict[str, Any]", value).get("generationStage", "")) if isinstance(value, dict) else ""


def _says_interrupted(text: str) -> bool:
    """Whether a text is the mark of a barge-in: `{ "interrupted" : true }`."""
    if '"interrupted"' not in text:
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(value == {"interrupted": True})


def _arguments(content: Any) -> Any:
    """The input of a call: JSON in a text, now and then twice. What cannot be read is handed on, and refused by its tool."""
    value = content
    for _ in range(2):
        if not isinstance(value, str):
            break
        if not value.strip():
            return {}
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            break
    return {} if value is None else value
