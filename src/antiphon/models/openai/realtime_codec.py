"""The protocol of OpenAI's Realtime API: frames in, events out, without I/O.

Errors that the provider reports end the session with an exception, but for these, which the state of the conversation shows
to be harmless, and which are counted (`counts`): a response that was asked for while another one, of the user's speech, began
(it is asked for again); a correction of what was heard that came too late for its item; a cancel or commit with nothing to
cancel or commit. Responses that fail for a while (too many requests, a failure of the server) are asked for again, a few times.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Sequence
from typing import Any, cast

import antiphon.models.openai.realtime_wire as wire
from antiphon.content import AudioDelta, BidiMessage, ToolResultBlock
from antiphon.errors import ConnectionTimeoutError, TransportError
from antiphon.events import (
    BidiBargeInEvent,
    BidiConnectionStartEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiToolUseBlocksEvent,
    BidiUsageEvent,
    OutputEvent,
)
from antiphon.jsonable import encode_json
from antiphon.models.live import Codec, Owed, Sightings
from antiphon.models.openai.realtime_answers import Answer, Answers
from antiphon.models.openai.realtime_asking import PATIENCE_S, Asking
from antiphon.models.openai.realtime_errors import Explainer, Failure
from antiphon.models.openai.realtime_hearing import Hearing
from antiphon.models.openai.realtime_history import Item, said
from antiphon.models.openai.realtime_opening import Opening
from antiphon.models.openai.realtime_sound import Outgoing, SoundFormat
from antiphon.models.openai.realtime_wire import read_event
from antiphon.transports.base import Frame

TRIES = 4
"""Responses in a row that may fail for a while."""
_LONGEST_PAUSE_S = 60.0
_OWN_ANSWER_S = 1.0
"""How soon after the user has spoken the provider begins to answer by itself, or does not at all."""
_UNHEARD_S = 3.0
"""How soon after another response has ended the provider says what becomes of one that was asked for."""
_MARK = "request"
_APPEND_BYTES = 6 * 1024 * 1024
"""Sound in one event; the provider takes 15 MiB of base64."""


class RealtimeCodec(Codec):
    """One session.

    Args:
        session: What `session.update` says.
        hears: The microphone's format.
        speaks: The loudspeaker's.
        history: What the session is told of the conversation so far.
        explainer: Says why something failed.
        limit_s: The longest that the connection may last.
        continued: Whether it replaces another one in the middle of a talk.
        owed: What answer the other one has not given.

    Attributes:
        explainer: Says why something failed; it is told the secret when that is known.
        counts: How often something came that nothing depends on: `unknown TYPE`, `absorbed CODE`, `untranscribed CODE`.
    """

    def __init__(
        self,
        *,
        session: dict[str, Any],
        hears: SoundFormat,
        speaks: SoundFormat,
        history: list[Item],
        explainer: Explainer,
        limit_s: float,
        continued: bool = False,
        owed: Owed = "",
    ) -> None:
        super().__init__()
        self.counts = Sightings()
        self._opening = Opening(session, history, continued=continued, owed=owed)
        self.explainer = explainer
        self._limit_s = limit_s
        self._outgoing = Outgoing(hears)
        self._speaks = speaks
        self._asking = Asking()
        self._answers = Answers()
        self._hearing = Hearing()
        self._limits: list[wire.RateLimit] = []
        self._failures = 0  # responses in a row
        self._numbers = 0

    @property
    def owed(self) -> Owed:
        return self._asking.owed

    # What goes out.

    def open(self) -> None:
        self.alarms["limit"] = self._limit_s

    def _say(self, event: dict[str, Any]) -> None:
        self.outbox.append(encode_json(event).decode())

    def send(self, content: BidiMessage | AudioDelta, /) -> None:
        if isinstance(content, AudioDelta):
            self._hear(self._outgoing.encode(content))
            return
        for item in said(content):
            self._numbers += 1
            key = f"item-{self._numbers}"
            if item["type"] != "function_call":  # one that another session made: its result comes with it
                self._asking.said(key)
            self._say({"type": "conversation.item.create", "event_id": key, "item": {"id": key, **item}})
        self._asking.running.difference_update(
            block.tool_use_id for block in content.content if isinstance(block, ToolResultBlock)
        )
        self._ask()

    def _hear(self, sound: bytes) -> None:
        for start in range(0, len(sound), _APPEND_BYTES):
            piece = sound if len(sound) <= _APPEND_BYTES else sound[start : start + _APPEND_BYTES]
            encoded = b2a_base64(piece, newline=False).decode()
            self.outbox.append(f'{{"type":"input_audio_buffer.append","audio":"{encoded}"}}')

    def truncate(self, response_id: str, played_ms: float) -> None:
        """The listener heard only so much of a response. The provider is told when it has ended: until then it grows."""
        answer = self._answers.get(response_id)
        if answer is not None:
            answer.heard_ms = played_ms if answer.heard_ms is None else min(played_ms, answer.heard_ms)
            if answer.over:
                self._correct(answer)

    def _correct(self, answer: Answer) -> None:
        for command in answer.corrections(self._speaks):
            self._numbers += 1
            kind = str(command["type"]).rpartition(".")[2]
            self._say({"event_id": f"{kind}-{self._numbers}", **command})

    def _ask(self) -> None:
        if not self.ready:
            return
        if request := self._asking.ask():
            mark = {
                "metadata": {_MARK: request}
            }  # told again when it begins: speech may bring about another one meanwhile
            self._say({"type": "response.create", "event_id": request, "response": mark})
            if self._asking.patient:
                self._asking.patient, self.alarms["patience"] = False, None
        elif self._asking.waits_for_tools and not self._asking.patient:
            self._asking.patient, self.alarms["patience"] = True, PATIENCE_S

    def ring(self, name: str, /) -> None:
        match name:
            case "limit":
                raise self._expired(f"the session has lasted {self._limit_s:g} s, the longest that was asked for")
            case "patience":
                self._asking.patient = False
                self._asking.running.clear()
            case "heard":
                self._asking.speaking = self._asking.heard = False
            case "asked":
                self._asking.refused(self._asking.asked)
                self._asking.over("")
            case _:
                self._asking.paused = False
        self._ask()

    def close(self) -> None:
        """Nothing: the provider takes the end of the wire for the end of the session."""

    def explain(self, error: TransportError | None, /) -> Exception:
        found, again = self.explainer.wire(error)
        return self._expired(str(found)) if again and self.ready else found

    def _expired(self, words: str) -> ConnectionTimeoutError:
        return ConnectionTimeoutError(words, owed=self._asking.owed)

    # What comes in.

    def receive(self, frame: Frame, /) -> Sequence[OutputEvent]:
        event = read_event(frame)
        if type(event) is wire.SoundDelta:
            answer = self._answers.get(event.response_id)
            if answer is not None:
                return answer.item(event.item_id).sound(event.response_id, event.delta, self._speaks)
        events = self._handle(event)
        self._ask()
        return events

    def _handle(self, event: wire.ServerEvent | wire.Other) -> Sequence[OutputEvent]:
        match event:
            case wire.SoundDelta() | wire.SoundDone() | wire.SpokenDelta() | wire.SpokenDone():
                return self._spoken(event)
            case wire.TextDelta() | wire.TextDone():
                return self._written(event)
            case wire.OutputItemAdded() | wire.OutputItemDone():
                return self._item(event)
            case wire.ResponseCreated():
                return self._begin(event.response.id or "", str((event.response.metadata or {}).get(_MARK, "")))
            case wire.ResponseDone():
                return self._done(event.response)
            case wire.SpeechStarted() | wire.Committed() | wire.Cleared() | wire.TimeoutTriggered():
                return self._user_speaks(event)
            case wire.HeardDelta() | wire.HeardDone() | wire.HeardFailed():
                if isinstance(event, wire.HeardFailed):
                    self.counts.note(f"untranscribed {(event.error and event.error.code) or ''}".rstrip())
                return self._hearing.words(event)
            case wire.ItemAdded() | wire.ItemCreated():
                self._known(event.item.id or "")
            case wire.RateLimits():
                self._limits = event.limits()
            case wire.SessionCreated():
                self._say({"type": "session.update", "event_id": "session", "session": self._opening.session})
            case wire.SessionUpdated():
                return self._opened(event.session)
            case wire.Failed():
                self._failed(event.error)
            case wire.Other():
                if event.type not in wire.EXPECTED:
                    self.counts.note(f"unknown {event.type}")
        return ()

    def _opened(self, session: wire.Session) -> Sequence[OutputEvent]:
        if self._opening.begun:
            return ()
        self._opening.begun = True
        for key, item in self._opening.items():
            self._say({"type": "conversation.item.create", "event_id": key, "item": {"id": key, **item}})
        if self._opening.owed:
            self._asking.said("history")
            self._asking.continues = self._opening.continues
        self.ready = not self._opening.untold
        return (BidiConnectionStartEvent(connection_id=session.id or "", model=session.model or ""),)

    def _known(self, item_id: str) -> None:
        """The provider has an item.

        Nothing else is said before it has the whole history: what it refuses of that, it refuses when the session is opened.
        """
        self._asking.known(item_id)
        self._opening.untold.discard(item_id)
        self.ready = self.ready or (self._opening.begun and not self._opening.untold)

    def _user_speaks(
        self, event: wire.SpeechStarted | wire.Committed | wire.Cleared | wire.TimeoutTriggered
    ) -> Sequence[OutputEvent]:
        # What was said is answered by itself, but for noise; asking for an answer at the same time would be refused.
        heard = isinstance(event, wire.TimeoutTriggered) or (
            isinstance(event, wire.Committed) and self._asking.speaking
        )
        self._asking.speaking = heard or isinstance(event, wire.SpeechStarted)
        self._asking.heard = heard
        self.alarms["heard"] = _OWN_ANSWER_S if heard else None
        match event:
            case wire.SpeechStarted():
                self._asking.interrupted = True
                # The answer that is cut may be complete long since, and still be played.
                return [*self._barge_in(self._answers.latest), *self._hearing.begin(event.item_id)]
            case wire.Committed():
                return self._hearing.begin(event.item_id)
            case wire.TimeoutTriggered():
                self._hearing.silent(event.item_id)
            case wire.Cleared():
                pass
        return ()

    def _barge_in(self, answer: Answer | None) -> list[OutputEvent]:
        if answer is None or answer.barged_in:
            return []
        answer.barged_in = True
        return [BidiBargeInEvent(response_id=answer.response_id)]

    def _begin(self, response_id: str, request: str = "") -> list[OutputEvent]:
        if self._answers.get(response_id) is not None:
            return []
        self._asking.begun(response_id, request)
        self.alarms |= {"heard": None, "asked": None}
        self._answers.begin(response_id)
        return [BidiResponseStartEvent(response_id=response_id)]

    def _answer(self, response_id: str) -> tuple[Answer, list[OutputEvent]]:
        """The response that something belongs to; events where it was not announced."""
        begun = self._begin(response_id)
        answer = self._answers.get(response_id)
        assert answer is not None  # noqa: S101 - it was begun
        return answer, begun

    def _spoken(
        self, event: wire.SoundDelta | wire.SoundDone | wire.SpokenDelta | wire.SpokenDone
    ) -> Sequence[OutputEvent]:
        answer, events = self._answer(event.response_id)
        item = answer.item(event.item_id)
        match event:
            case wire.SoundDelta():
                return [*events, *item.sound(answer.response_id, event.delta, self._speaks)]
            case wire.SoundDone():
                return [*events, *item.sound_done(answer.response_id, self._speaks)]
            case wire.SpokenDelta():
                return [*events, *item.words(event.delta)]
            case wire.SpokenDone():
                return [*events, *item.words_done(event.transcript)]

    def _written(self, event: wire.TextDelta | wire.TextDone) -> Sequence[OutputEvent]:
        answer, events = self._answer(event.response_id)
        item = answer.item(event.item_id)
        if isinstance(event, wire.TextDelta):
            return [*events, *item.text(event.delta)]
        return [*events, *item.text_done(event.text)]

    def _item(self, event: wire.OutputItemAdded | wire.OutputItemDone) -> Sequence[OutputEvent]:
        answer, events = self._answer(event.response_id)
        if isinstance(event, wire.OutputItemAdded):
            if event.item.type == "message":
                answer.item(event.item.id or "")
            return events
        return [*events, *answer.item_done(event.item, self._speaks)]

    def _done(self, response: wire.Response) -> Sequence[OutputEvent]:
        answer, events = self._answer(response.id or "")
        if answer.over:
            return ()
        for item in response.output or ():
            events += answer.item_done(item, self._speaks)
        for spoken in answer.items.values():
            events += spoken.end(answer.response_id, self._speaks)
        answer.over = True
        details = response.status_details
        if response.status == "cancelled" and details is not None and details.reason == "turn_detected":
            events += self._barge_in(answer)
        if calls := list(answer.calls.values()):
            self._asking.called(call["toolUseId"] for call in calls)
            events.append(BidiToolUseBlocksEvent(tool_uses=calls))
        if response.usage:
            events.append(_usage(response.usage))
        self._asking.over(answer.response_id)
        if self._asking.asked:
            self.alarms["asked"] = _UNHEARD_S
        self._correct(answer)
        if response.status == "failed":
            trouble = details.error if details is not None else None
            self._try_again(self.explainer.failure(trouble or wire.Trouble("the response failed", "server_error")))
        else:
            self._failures = 0
        # One that is cut by the user is told of as such; one that was cut short by a limit or a filter, nobody else tells of.
        reason = (details.reason or "incomplete") if details is not None and response.status == "incomplete" else ""
        events.append(BidiResponseStopEvent(response_id=answer.response_id, reason=reason))
        return events

    def _failed(self, trouble: wire.Trouble) -> None:
        failure = self.explainer.failure(trouble)
        code = trouble.code or trouble.type or "error"
        match failure.kind:
            case "expired":
                raise self._expired(str(failure.error))
            case "active":
                self.counts.note(f"absorbed {code}")
                self._asking.refused(trouble.event_id or self._asking.asked)
            case "race":
                self.counts.note(f"absorbed {code}")
            case "passing" if self._asking.asked and trouble.event_id == self._asking.asked:
                self._asking.over(self._asking.asked)
                self._asking.asked = ""
                self._try_again(failure)
            case "passing" if self.ready and trouble.type == "server_error":
                raise self._expired(str(failure.error))  # what became of the session, nobody can say: open another one
            case _:
                raise failure.error

    def _try_again(self, failure: Failure) -> None:
        """A response has failed.

        Raises:
            ModelError: If there is no use in asking again.
        """
        self._failures += 1
        if failure.kind == "expired":
            raise self._expired(str(failure.error))
        if failure.kind != "passing" or self._failures >= TRIES:
            raise failure.error
        self.counts.note("failed responses")
        self._asking.again()
        self._asking.paused = True
        resets = [
            limit.reset_seconds or 0.0 for limit in self._limits if limit.remaining is not None and limit.remaining <= 0
        ]
        self.alarms["again"] = min(_LONGEST_PAUSE_S, max([2.0 ** (self._failures - 1), *resets]))


def _usage(told: Any) -> BidiUsageEvent:
    usage = cast("dict[str, Any]", told) if isinstance(told, dict) else {}

    def tokens(name: str) -> int:
        value = usage.get(name)
        return value if isinstance(value, int) else 0

    def details(name: str) -> dict[str, Any] | None:
        value: Any = usage.get(name)
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None

    return BidiUsageEvent(
        input_tokens=tokens("input_tokens"),
        output_tokens=tokens("output_tokens"),
        total_tokens=tokens("total_tokens"),
        input_token_details=details("input_token_details"),
        output_token_details=details("output_token_details"),
    )
