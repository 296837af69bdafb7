"""How far the sound that was handed out was played: as the loudspeaker reports, else as time tells."""

from __future__ import annotations

STALL_S = 5.0
"""How long a finished answer may make no progress towards the ear before it is taken as not heard to its end."""
UNREPORTED_MS = 500.0
"""Loudspeakers report every 100 ms or so, and not all of them report the end: so much may be missing from the last report."""
REPORT_GAP_S = 0.1
"""How much longer than what is missing a loudspeaker must have been silent before the answer counts as played."""
ROUNDING_MS = 1.0
"""Sinks report whole samples or whole milliseconds; less than this is not missing from a finished answer."""
EPSILON_MS = 1e-6
_EPSILON_S = 1e-6


class Loudspeaker:
    """The order in which responses are played, as far as time tells: one after the other."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: list[Playback] = []

    def add(self, playback: Playback, now: float) -> float:
        """A response hands out its first sound. Returns when it is its turn."""
        self._queue = [other for other in self._queue if other.until > now]
        turn = max(now, self._queue[-1].until) if self._queue else now
        self._queue.append(playback)
        return turn

    def move(self, playback: Playback, now: float) -> None:
        """A response ends earlier or later than it seemed: those behind it follow."""
        if playback in self._queue and playback is not self._queue[-1]:
            end = playback.until
            for other in self._queue[self._queue.index(playback) + 1 :]:
                other.follow(end, now)
                end = other.until


class Playback:
    """The sound of one response on its way to the ear.

    Attributes:
        given_ms: Sound that was handed out.
        gap_ms: Where the first sound was dropped.
        reported_ms: What the loudspeaker says it has played.
        progress_at: When something was last done about it.
        silenced_at: When the loudspeaker was silenced.
    """

    __slots__ = (
        "_handed_at",
        "_lost_ms",
        "_loudspeaker",
        "_reported_at",
        "_turn_at",
        "_turn_ms",
        "gap_ms",
        "given_ms",
        "progress_at",
        "reported_ms",
        "silenced_at",
    )

    def __init__(self, now: float, loudspeaker: Loudspeaker | None = None) -> None:
        self.given_ms = 0.0
        self.gap_ms: float | None = None
        self.reported_ms: float | None = None
        self.progress_at = now
        self.silenced_at: float | None = None
        self._handed_at: float | None = None
        self._lost_ms = 0.0
        self._reported_at = now
        self._turn_at = now  # since when it is played without a pause, and from where
        self._turn_ms = 0.0
        self._loudspeaker = loudspeaker or Loudspeaker()

    def deliver(self, ms: float, now: float) -> None:
        """`ms` of sound were handed to whoever plays it."""
        if self._handed_at is None:
            self._handed_at = now
            self._turn_at = self._loudspeaker.add(self, now)
        elif self._turn_at + (self.given_ms - self._turn_ms) / 1000 < now:  # `until`, without the call
            self._turn_at, self._turn_ms = now, self.given_ms
        self.given_ms += ms
        self.progress_at = now

    def lose(self, ms: float) -> None:
        """`ms` of sound, the next that would have been handed out, were dropped instead."""
        if self.gap_ms is None:
            self.gap_ms = self.given_ms
        self._lost_ms += ms

    def report(self, ms: float, now: float) -> None:
        """The loudspeaker has played the first `ms`, which cannot be more than it was given.

        Reports go forward only, save that the word of a loudspeaker that was silenced counts as it is.
        """
        ms = min(max(0.0, ms), self.delivered_ms)
        if self.reported_ms is None or ms > self.reported_ms or self.silenced_at is not None:
            self.reported_ms = ms
            self._reported_at = self.progress_at = now
            if self.silenced_at is None:
                self._turn_at, self._turn_ms = now, min(ms, self.given_ms)
                self._loudspeaker.move(self, now)

    def follow(self, end: float, now: float) -> None:
        """The response in front of this one ends at `end`."""
        if self.silenced_at is None and self.reported_ms is None and self._handed_at is not None:
            turn = max(end, self._handed_at)
            if self._turn_at < turn or self._turn_at > now:
                self._turn_at = turn

    def silence(self, now: float) -> None:
        """The loudspeaker is silenced: it plays no more of this."""
        self.silenced_at = now
        self._loudspeaker.move(self, now)

    @property
    def delivered_ms(self) -> float:
        """Sound that was handed out, or dropped where it would have been."""
        return self.given_ms + self._lost_ms

    @property
    def until(self) -> float:
        """When what was handed out will have been played, or was silenced."""
        if self.silenced_at is not None:
            return self.silenced_at
        return self._turn_at + (self.given_ms - self._turn_ms) / 1000

    def position_ms(self, now: float) -> float:
        """How far it was played: as reported, else as far as time and what was handed out allow."""
        if self.reported_ms is not None:
            return self.reported_ms
        if self._handed_at is None:
            return 0.0
        since = (now if self.silenced_at is None else min(now, self.silenced_at)) - self._turn_at
        played = min(self._turn_ms + max(0.0, since) * 1000, self.given_ms)
        if self.gap_ms is not None and played > self.gap_ms:
            played += self._lost_ms
        return played

    def covers(self, whole_ms: float, now: float) -> bool:
        """Whether the last report and the time since then cover all of a complete answer."""
        at = self._covers_at(whole_ms)
        if at is None:
            return False
        return now >= at + REPORT_GAP_S if self.silenced_at is None else at <= self.silenced_at

    def _covers_at(self, whole_ms: float) -> float | None:
        if self.reported_ms is None or self.delivered_ms < whole_ms - ROUNDING_MS:
            return None
        rest = whole_ms - self.reported_ms
        return self._reported_at + max(0.0, rest) / 1000 if rest <= UNREPORTED_MS else None

    @property
    def stalls_at(self) -> float:
        """When a complete answer is given up, if nothing is heard of it before."""
        waited = self.progress_at if self.reported_ms is not None else max(self.progress_at, self.until)
        return waited + STALL_S

    def looks_at(self, ms: float, now: float) -> float:
        """When the first `ms` of a complete answer may have been played, or it is given up."""
        if self.reported_ms is not None:
            at = self._covers_at(ms)
            return self.stalls_at if at is None else min(self.stalls_at, at + REPORT_GAP_S)
        if self.delivered_ms < ms - EPSILON_MS:
            return now  # nobody says when the rest is handed out
        to_play = ms if self.gap_ms is None or ms <= self.gap_ms else ms - self._lost_ms
        # A little later than it ends: what the sum of times says must not be earlier than what their difference says.
        return self._turn_at + (to_play - self._turn_ms) / 1000 + _EPSILON_S
