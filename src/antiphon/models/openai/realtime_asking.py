"""When to ask the provider for an answer.

Speech is answered by itself. Whatever else is said (typed text, images, results of tools) is answered when it is asked for,
once, and only while no other response is under way: the provider refuses a second one. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.models.live import Owed

PATIENCE_S = 2.0
"""How long what is said waits for the tools that run: a tool may wait for a person, and the talk goes on meanwhile."""
_UNKNOWN = "?"
"""A response that the provider says is under way, and has not told of."""
_FAILED = "failed"
"""Stands for what a response that failed was to answer."""


class Asking:
    """What was said and is not answered yet, and what stands in the way of asking.

    Attributes:
        active: The responses under way, by id.
        asked: The request for a response that the provider has not begun yet; empty: there is none.
        speaking: Whether the user speaks, or has just spoken; the answer to that comes by itself.
        interrupted: Whether the user has begun to speak since the last response began: nobody wants the rest of it.
        heard: Whether the user has spoken, and the answer to that is to come by itself.
        continues: Whether what was asked for is the rest of an answer that another session began.
        paused: Whether the provider is to be left alone for a while.
        running: The calls whose results are awaited.
        patient: Whether somebody looks at the time for which an answer waits for tools.
    """

    __slots__ = (
        "_covered",
        "_known",
        "_number",
        "_unanswered",
        "active",
        "asked",
        "continues",
        "heard",
        "interrupted",
        "patient",
        "paused",
        "running",
        "speaking",
    )

    def __init__(self) -> None:
        self.active: set[str] = set()
        self.asked = ""
        self.speaking = False
        self.interrupted = False
        self.heard = False
        self.continues = False
        self.paused = False
        self.patient = False
        self.running: set[str] = set()
        self._unanswered: list[str] = []
        self._known: set[str] = set()  # of those unanswered, the ones that the provider has
        self._covered: list[str] = []  # what the response that was asked for is to answer
        self._number = 0

    @property
    def owed(self) -> Owed:
        """What answer would be missing, if the session ended now."""
        if (self.active or self.continues) and not self.interrupted:
            return "cut"
        return "said" if self.asked or self._unanswered or self.heard else ""

    @property
    def waits_for_tools(self) -> bool:
        """Whether nothing but a running tool keeps an answer from being asked for."""
        return self._free and bool(self._unanswered and self.running)

    @property
    def _free(self) -> bool:
        return not (self.active or self.asked or self.speaking or self.paused)

    def said(self, item_id: str) -> None:
        """Something that wants an answer is on its way to the provider."""
        self._unanswered.append(item_id)

    def known(self, item_id: str) -> None:
        """The provider has it: a response that begins from now on takes it into account."""
        if item_id in self._unanswered or item_id in self._covered:
            self._known.add(item_id)

    def called(self, calls: Iterable[str]) -> None:
        """The model calls tools."""
        self.running.update(calls)

    def ask(self) -> str:
        """The id of a request to send now; empty: it is not the time.

        The caller sends it: from then on a response is asked for.
        """
        if not self._unanswered or not self._free or self.running:
            return ""
        self._number += 1
        self.asked = f"ask-{self._number}"
        self._covered, self._unanswered = self._unanswered, []
        return self.asked

    def begun(self, response_id: str, request: str = "") -> None:
        """A response begins: the one that was asked for, or one that the user's speech has brought about.

        Args:
            response_id: Its id.
            request: What it says of whose request it is; empty: nothing, as with speech, or where a server does not tell.
        """
        self.active.discard(_UNKNOWN)
        self.active.add(response_id)
        self._unanswered = [item for item in self._unanswered if item not in self._known]
        if request and request == self.asked:
            self.asked, self._covered = "", []
        else:
            # If it is not ours, the provider will refuse ours; then what it does not know yet is asked for again.
            self._covered = [item for item in self._covered if item not in self._known]
            if not request and not self.speaking:
                self.asked = ""
        self.speaking = self.heard = self.interrupted = self.continues = False

    def over(self, response_id: str) -> None:
        """A response has ended, in whatever way."""
        self.active -= {response_id, _UNKNOWN}
        if not self.active:
            if not self.asked:
                self._covered = []
            self._known.intersection_update([*self._unanswered, *self._covered])

    def refused(self, request: str) -> None:
        """The provider refuses a request, because another response is under way: ask again after that."""
        if request == self.asked or not self.asked:
            self._unanswered, self._covered = [*self._covered, *self._unanswered], []
            self.asked = ""
            if not self.active:
                self.active.add(_UNKNOWN)  # or the same would be asked and refused without end

    def again(self) -> None:
        """A response has failed: what it was to answer is not answered. The provider has it: whatever begins next answers it."""
        self.said(_FAILED)
        self.known(_FAILED)
