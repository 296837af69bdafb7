"""The user's part of a live call: where spoken words belong, and whether an answer is owed."""

from __future__ import annotations

from antiphon.conversation.corrections import Corrections
from antiphon.conversation.heard import Speech
from antiphon.conversation.lines import Line


class Listening:
    """What is known of the user's turns.

    The models differ in what they say of the user's speech: that it begins, that it is complete, whose words are which; or
    only the words, late. So what is not said is concluded from what this model has said before.

    Attributes:
        sound_in: Whether sound of the user was sent since the last response began.
        owed: Whether the user said something complete that no response has begun to answer.
        answered: Whether the user has said nothing complete since the last response began.
    """

    __slots__ = (
        "_announced",
        "_announces",
        "_corrections",
        "_lines",
        "_owed_to",
        "_prompted",
        "_says_stop",
        "answered",
        "owed",
        "sound_in",
    )

    def __init__(self, lines: list[Line], corrections: Corrections) -> None:
        self._lines = lines
        self._corrections = corrections
        self.sound_in = False
        self.owed = False
        self.answered = True
        self._owed_to: Line | None = None  # the only thing that is to be answered, if it is speech
        self._prompted = False  # something is known that the next response answers
        self._announced = False  # the model said that the user speaks, since the last response began
        self._announces = False  # it does so before it responds
        self._says_stop = False  # it says when the user's words are complete

    def typed(self, *, by_user: bool) -> None:
        """A message was said that is no speech, or tools have results."""
        self._prompted = True
        self.answered = False
        if by_user:
            self.owed, self._owed_to = True, None

    def start(self, content_id: str, now: float) -> None:
        """The user begins to speak."""
        # The next words with this id are not those of an earlier line.
        self._corrections.forget(lambda line: line.kind == "user" and line.key == content_id)
        if any(line.kind == "user" and line.key == content_id and line.unanswered for line in self._lines[-1:]):
            return  # it was said twice
        if self._slot(content_id, now, started=True) is None:
            self._new_line(content_id)
            self._announced = True

    def words(self, content_id: str, now: float) -> Line:
        """The line for words that came: an open one, a settled one, the place before an answer, or a new one."""
        return (
            self._open_line(content_id, now)
            or self._corrections.find(lambda line: line.kind == "user" and line.key == content_id)
            or self._slot(content_id, now, started=False)
            or self._new_line(content_id)
        )

    def stop(self, content_id: str, now: float) -> Line:
        """The user's words are complete. Returns their line."""
        self._says_stop = True
        line = self.words(content_id, now)
        line.closed = line.stopped = True
        silent = not line.text.strip()
        if line.answered_by is None and not silent:
            self.answered = False
        if line is self._owed_to and silent:  # noise
            self.owed, self._owed_to = False, None
        return line

    def respond(self, speech: Speech) -> None:
        """A response begins: it answers all that was said before."""
        if self._announced:
            self._announces = True
        elif self.sound_in and not self._prompted and not self._announces:
            # The user was heard, but nothing is known of the words yet: they belong here when they come. Not where the model
            # says beforehand that the user speaks: what it did not say of this response, nobody said.
            self._lines.append(Line("slot"))
        for line in self._lines:
            if line.kind in {"user", "slot"} and line.answered_by is None:
                line.answered_by = speech
        self._prompted = self.sound_in = self._announced = False
        self.answered = True
        self.nothing_owed()

    def interrupt(self, speeches: list[Speech] | None) -> None:
        """The user speaks over these responses, or all: what is said from here on has no place in front of them."""
        for line in self._lines:
            if speeches is None or line.answered_by in speeches:
                nameless = line.kind == "user" and not line.key and not self._says_stop
                if line.kind == "slot" or (nameless and line.answered_by is not None and line.text):
                    line.closed = True

    def disconnected(self, now: float) -> None:
        """No words will come any more."""
        for line in self._lines:
            if line.kind in {"user", "slot"}:
                line.deadline = now
        self.nothing_owed()

    def nothing_owed(self) -> None:
        """Nothing that was said waits for an answer."""
        self.owed, self._owed_to = False, None

    def may_change(self, line: Line) -> bool:
        """Whether more words may come for a line of the user that is settled now."""
        return not line.closed and (bool(line.key) or self._says_stop or not line.text.strip())

    def _new_line(self, content_id: str) -> Line:
        line = Line("user", content_id)
        self._lines.append(line)
        self._owed_to = None if self.owed else line
        self._prompted = self.owed = True
        return line

    def _open_line(self, content_id: str, now: float) -> Line | None:
        for line in reversed(self._lines):
            if line.kind == "user" and line.key == content_id and not line.closed:
                # Where neither an id nor an end is told, words that come so late are others.
                return line if self.may_change(line) or not line.overdue(now) else None
        return None

    def _slot(self, content_id: str, now: float, *, started: bool) -> Line | None:
        """The place before an answer, for words that may belong there.

        Speech that begins after the answer was made is not what it answers.
        """
        for line in self._lines:
            if line.kind == "slot" and not line.closed and not line.overdue(now):
                if started and line.deadline is not None:
                    continue
                line.kind, line.key = "user", content_id
                return line
        return None
