"""The way of a live call's events to the application: one lane for sound, one for everything else.

Events come out in the order in which they went in, but a barge-in overtakes everything and takes the queued sound of the cut
response with it. Nobody who puts an event in ever waits: sound past a bound is dropped, oldest first; other events are kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from antiphon.conversation.heard import Speech
from antiphon.events import BidiAudioDeltaEvent, OutputEvent

HEARD_BOUND_MS = 120_000.0
"""How much sound waits for an application that takes it: a long answer, made much faster than it is played."""
UNHEARD_BOUND_MS = 5_000.0
"""How much sound is kept while nobody has ever asked for events."""


class EventLanes:
    """Queued events of one call.

    Attributes:
        error: Why the call ended, when it ended badly.
        closed: Whether nothing more will come.
        attached: Whether somebody has ever asked for events.
        muted: Whether no more sound may come out. May be set from any thread.
    """

    __slots__ = (
        "_audio",
        "_control",
        "_now",
        "_number",
        "_queued_ms",
        "_waiters",
        "attached",
        "closed",
        "error",
        "muted",
    )

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # Number, event, its response, how long it is, and whether it counts as given already.
        self._audio: deque[tuple[int, BidiAudioDeltaEvent, Speech, float, bool]] = deque()
        self._control: deque[tuple[int, OutputEvent]] = deque()
        self._number = 0
        self._queued_ms = 0.0
        self._waiters: list[asyncio.Future[None]] = []
        self.attached = False
        self.muted = False
        self.closed = False
        self.error: BaseException | None = None

    def put(self, event: OutputEvent) -> None:
        """Queue an event that is not sound. Nothing, once the lanes are closed."""
        if self.closed:
            return
        self._number += 1
        self._control.append((self._number, event))
        if self._waiters:
            self._wake()

    def put_audio(self, event: BidiAudioDeltaEvent, speech: Speech, ms: float) -> None:
        """Queue `ms` milliseconds of a response's sound."""
        self._number += 1
        self._audio.append((self._number, event, speech, ms, not self.attached))
        self._queued_ms += ms
        if self._waiters:
            self._wake()
        if not self.attached:
            # With no listener there is nobody who could have missed it: the answer counts as given.
            speech.deliver(ms, self._now())
        if self._queued_ms > HEARD_BOUND_MS or not self.attached:
            self._drop_over(HEARD_BOUND_MS if self.attached else UNHEARD_BOUND_MS)

    def _drop_over(self, bound_ms: float) -> None:
        while self._queued_ms > bound_ms:
            _, _, speech, ms, given = self._audio.popleft()
            self._queued_ms -= ms
            if not given:
                speech.lose(ms)

    def put_first(self, event: OutputEvent) -> None:
        """Queue an event ahead of everything, and drop the sound of responses that are cut."""
        kept = [entry for entry in self._audio if not entry[2].cut]
        self._audio = deque(kept)
        self._queued_ms = sum(entry[3] for entry in kept)
        self._control.appendleft((-1, event))
        self._wake()

    def silence(self) -> None:
        """Drop all queued sound."""
        self._audio.clear()
        self._queued_ms = 0.0

    def close(self, error: BaseException | None = None) -> None:
        """Nothing more will come; what is queued is still handed out, then `error` is raised."""
        if not self.closed:
            self.closed, self.error = True, error
        while self._waiters:
            self._wake()

    def attach(self) -> None:
        """Somebody asks for events from now on."""
        self.attached = True

    def pop(self) -> OutputEvent | None:
        """The next event, or None when none is queued. Sound that is taken counts as delivered."""
        control, audio = self._control, self._audio
        while audio and (not control or audio[0][0] < control[0][0]):
            _, event, speech, ms, given = audio.popleft()
            self._queued_ms -= ms
            if not speech.cut and not self.muted:
                if not given:
                    speech.deliver(ms, self._now())
                return event
        return control.popleft()[1] if control else None

    async def wait(self) -> None:
        """Return when something was queued, or the lanes were closed."""
        if self._control or self._audio or self.closed:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif self._waiters:
                self._wake()  # it was this one's turn: pass it on
            raise

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return
