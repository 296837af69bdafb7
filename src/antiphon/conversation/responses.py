"""The responses of a live call: the one under way, and those whose words, sound or reports may still come."""

from __future__ import annotations

from collections.abc import Container, Iterator

from antiphon.conversation.heard import Part, Speech
from antiphon.conversation.playback import Loudspeaker

TAIL_S = 0.5
"""What is not labelled belongs to a response that was cut until it is silent for so long."""
_KEPT = 8


class Responses:
    """The latest responses, in the order in which they began.

    Attributes:
        current: The one under way.
    """

    __slots__ = ("_known", "_loudspeaker", "_number", "_tail", "_tail_at", "current")

    def __init__(self) -> None:
        self.current: Speech | None = None
        self._known: dict[str, Speech] = {}
        self._number = 0
        self._loudspeaker = Loudspeaker()
        self._tail: Speech | None = None
        self._tail_at = 0.0

    def __iter__(self) -> Iterator[Speech]:
        return iter(list(self._known.values()))

    def get(self, response_id: str) -> Speech | None:
        """The response with this id, if it is known (still)."""
        return self._known.get(response_id)

    def begin(self, response_id: str, now: float, *, implicit: bool) -> Speech:
        """Another one begins; an empty id gets it one of ours."""
        self._number += 1
        key = response_id or f"response-{self._number}"
        speech = Speech(key, now, implicit=implicit, loudspeaker=self._loudspeaker)
        self._known.pop(key, None)
        self._known[key] = self.current = speech
        self._tail = None
        return speech

    def up_to(self, response_id: str) -> list[Speech]:
        """Those that began before this one, and itself; all of them, if it is not known."""
        speeches = list(self._known.values())
        return speeches[: list(self._known).index(response_id) + 1] if response_id in self._known else speeches

    def forget(self, wanted: Container[Speech]) -> None:
        """Keep those that are `wanted` or under way, and a few behind them, for what comes late."""
        if len(self._known) > _KEPT:
            for speech in list(self._known.values())[:-_KEPT]:
                if speech.complete and speech not in wanted:
                    del self._known[speech.response_id]

    def broke_off(self, speech: Speech, now: float) -> None:
        """A response was cut while it was made: some more of it may be on its way."""
        self._tail, self._tail_at = speech, now

    def end_tail(self, response_id: str = "") -> None:
        """Something new begins. Given a response's id, only if it is not that of the response that was cut."""
        if self._tail is not None and response_id != self._tail.response_id:
            self._tail = None

    def over(self, response_id: str) -> None:
        """The model says that it has delivered this response."""
        if self._tail is not None and response_id in {"", self._tail.response_id}:
            self._tail = None

    def tail(self, now: float) -> Speech | None:
        """The response that was cut, if what is not labelled still belongs to it."""
        if self._tail is not None:
            if now - self._tail_at >= TAIL_S:
                self._tail = None
            else:
                self._tail_at = now
        return self._tail

    def part(self, content_id: str, now: float, *, answered: bool) -> Part | None:
        """The transcript that words belong to; None where they begin another one.

        The last words of an answer may come after its end. By their id they find it, unless an answer is under way that has
        no words yet: a model may use one id for all. Without an id they belong to the answer under way, else to the last
        one.

        Args:
            content_id: The transcript's id, or empty.
            now: The time.
            answered: Whether the user has said nothing since the last response began.
        """
        current = self.current
        if current is not None and (part := current.open_part(content_id)) is not None:
            return part
        wordless = current is not None and not current.parts
        if content_id:
            for speech in reversed(self._known.values()):
                part = speech.open_part(content_id)
                if part is not None and not (wordless and (speech.cut or part.settled)):
                    return part
            return None
        if current is not None:
            return None
        if (tail := self.tail(now)) is not None:
            return tail.open_part("") or _unheard(tail)
        last = next(reversed(self._known.values()), None)
        return last.open_part("") if last is not None and answered and not last.cut else None

    def wordless(self) -> Speech | None:
        """The last response, if it is over and was sound only: a transcript that begins now is most likely its own."""
        last = next(reversed(self._known.values()), None)
        return last if last is not None and last.complete and last.audio_ms and not last.parts else None

    def renew(self, content_id: str) -> None:
        """A transcript begins: another one with its id, if there was one, is complete."""
        for speech in self._known.values():
            while (part := speech.open_part(content_id)) is not None:
                part.stopped = True


def _unheard(speech: Speech) -> Part:
    part = Part("", speech.audio_ms)
    part.freeze()
    speech.parts.append(part)
    return part
