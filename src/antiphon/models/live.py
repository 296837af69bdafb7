"""What the live models of all providers share: a codec without I/O, driven over a wire.

A codec (`Codec`) turns what is sent into frames and frames into events; it knows one provider's protocol and no clock, no
socket and no loop. A model (`WiredModel`) opens the wire, hands frames back and forth, keeps the codec's alarms, and says in
the house's errors why a wire failed.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Generic, Literal

from typing_extensions import TypeVar

from antiphon.bounded import settle, within
from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import AudioDelta, BidiMessage, Messages, ToolSpec
from antiphon.errors import AntiphonError, ConnectionEndedError, ModelConnectionError, TransportError
from antiphon.events import OutputEvent
from antiphon.models.bidi import BidiModel
from antiphon.transports.base import Frame, Transport

Owed = Literal["", "said", "cut"]
"""No answer is missing; one to what was said; the rest of one that has begun."""
_CLOSE_S = 2.0
_KINDS = 64
_OTHERS = "(others)"


class Sightings(Counter[str]):
    """What came and is not understood, and how often. Whatever names a provider makes up, only so many are kept."""

    def note(self, what: str) -> bool:
        """Count it, by its name or among `(others)`. Returns whether it is the first of its name."""
        name = what if what in self or len(self) < _KINDS else _OTHERS
        self[name] += 1
        return self[name] == 1


class Codec(ABC):
    """One connection's protocol. Pure: what happened last decides, never the time.

    Attributes:
        outbox: Frames to send, in order. Every method may add some; the driver takes them after each call.
        alarms: By name, in how many seconds to call `ring`; the driver takes them after each call. A name that is set
            again is rung at the new time only; None: not any more.
        ready: Whether the provider has accepted the session; `WiredModel.start` waits for it.
    """

    def __init__(self) -> None:
        self.outbox: list[Frame] = []
        self.alarms: dict[str, float | None] = {}
        self.ready = False

    @property
    def owed(self) -> Owed:
        """What answer would be missing, if the connection ended now: the one that takes its place gives it."""
        return ""

    @abstractmethod
    def open(self) -> None:
        """The wire is open: put what opens the session (and replays the history) into the outbox."""
        ...

    @abstractmethod
    def send(self, content: BidiMessage | AudioDelta, /) -> None:
        """Put what the user or a tool says into the outbox.

        Raises:
            InvalidInputError: If the provider cannot take it.
        """
        ...

    @abstractmethod
    def receive(self, frame: Frame, /) -> Sequence[OutputEvent]:
        """The events that a frame makes.

        Raises:
            ConnectionTimeoutError: If the provider ends the connection at its limit.
            ModelError: If the provider reports an error that ends the session, or the frame cannot be read.
        """
        ...

    @abstractmethod
    def close(self) -> None:
        """Put what ends the session in good order into the outbox, if anything does."""
        ...

    @abstractmethod
    def explain(self, error: TransportError | None, /) -> Exception:
        """Why the wire ended: an error to raise. None: the other side closed it in good order, unasked."""
        ...

    def ring(self, name: str, /) -> None:
        """An alarm is due.

        Raises:
            ConnectionTimeoutError: If the connection has reached a limit of the client's. The wire is then closed, and
                `WiredModel.receive` raises it.
            ModelError: If the session cannot go on: likewise.
        """
        raise NotImplementedError(name)


CONTINUE = (
    "(The line dropped for a moment, and your last answer was cut off. Give the rest of it, in the same language and manner, "
    "without a greeting and without a word about the interruption.)"
)
"""Said in the user's place to a session that is to give the rest of an answer which another one began."""

CodecT = TypeVar("CodecT", bound=Codec, default=Codec)


class Link(Generic[CodecT]):
    """One connection: what is lost, all of it, when it ends.

    Attributes:
        wire: None until it is dialled.
        early: Events that came before `ready`.
        failure: Why a connection was given up on this side.
        posting: Sends what the codec answered to what it received, while it has something to send.
    """

    __slots__ = ("codec", "early", "failure", "posting", "sending", "timers", "wire")

    def __init__(self, codec: CodecT) -> None:
        self.codec = codec
        self.wire: Transport | None = None
        self.early: list[OutputEvent] = []
        self.failure: Exception | None = None
        self.posting: asyncio.Task[None] | None = None
        self.sending = asyncio.Lock()
        self.timers: dict[str, asyncio.Task[None]] = {}

    async def flush(self) -> None:
        """Send what is in the outbox, in order, whoever put it there.

        Frames stay in the outbox until it is their turn: who is cancelled while another one sends takes nothing along.

        Raises:
            TransportError: If the wire is gone.
        """
        wire, codec = self.wire, self.codec
        if wire is None:
            raise TransportError("the wire is not open", opened=False)
        async with self.sending:
            while codec.outbox:
                frame = codec.outbox.pop(0)
                await wire.send((frame,))


class WiredModel(BidiModel, Generic[CodecT]):
    """Drives a codec over a wire. A provider's model gives `_make_codec` and `_dial`.

    `receive` reads the wire itself: no task and no queue stand between the wire and the agent. It never waits for the network
    to take something: what the user says may not fit through it, and the answer is heard all the same.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, start_timeout_s: float = 20.0) -> None:
        self._clock = clock
        self._start_timeout_s = start_timeout_s
        self._link: Link[CodecT] | None = None

    @abstractmethod
    def _make_codec(
        self, system_prompt: str | None, tools: list[ToolSpec], messages: Messages, restart_config: dict[str, Any]
    ) -> CodecT:
        """The codec of a new connection."""
        ...

    @abstractmethod
    async def _dial(self, codec: CodecT) -> Transport:
        """Open the wire.

        Raises:
            TransportError: If that fails; `codec.explain` then says why.
            ModelError: Where the reason is known.
        """
        ...

    async def start(
        self,
        system_prompt: str | None = None,
        tools: list[ToolSpec] | None = None,
        messages: Messages | None = None,
        **kwargs: Any,
    ) -> None:
        await self.stop()
        link = Link(self._make_codec(system_prompt, tools or [], messages or [], kwargs))
        self._link = link
        try:
            await within(self._clock, self._start_timeout_s, self._connect(link))
        except TimeoutError as error:
            await self._end(link)
            if isinstance(error, AntiphonError):
                raise
            raise ModelConnectionError(
                f"{self.model_id!r} did not accept the session within {self._start_timeout_s} s"
            ) from error
        except BaseException:
            await self._end(link)
            raise

    async def _connect(self, link: Link[CodecT]) -> None:
        codec = link.codec
        try:
            wire = await self._dial(codec)
            link.wire = wire
            if self._link is not link:  # `start` ends it
                raise ConnectionEndedError(f"{self.model_id!r} was stopped while it started")
            codec.open()
            await self._after(link)
            while not codec.ready:
                frame = await wire.receive()
                if frame is None:
                    raise codec.explain(None)
                link.early += codec.receive(frame)
                with suppress(TransportError):  # what is still to be read may say why
                    await self._after(link)
        except TransportError as error:
            raise codec.explain(error) from error

    async def restart(
        self,
        system_prompt: str | None = None,
        tools: list[ToolSpec] | None = None,
        messages: Messages | None = None,
        **restart_config: Any,
    ) -> None:
        """Replace the connection; `restart_config` may hold what the provider needs to resume its session.

        `owed` is what the old connection said of an answer that it had not given, or not to its end: the new one gives it.
        """
        if owed := self._owed():
            restart_config = {"owed": owed, **restart_config}
        await self.start(system_prompt=system_prompt, tools=tools, messages=messages, **restart_config)

    def _owed(self) -> Owed:
        """What answer the open connection has not given."""
        return self._link.codec.owed if self._link is not None else ""

    async def stop(self) -> None:
        if self._link is not None:
            await self._end(self._link)

    async def _end(self, link: Link[CodecT]) -> None:
        """Close one connection, in good order where that is possible. Another one that took its place stays."""
        if self._link is link:
            self._link = None
        timers = [timer for timer in link.timers.values() if timer is not asyncio.current_task()]
        if link.posting is not None:
            timers.append(link.posting)
        link.timers.clear()
        for timer in timers:
            timer.cancel()
        wire = link.wire
        if wire is None:
            return
        try:
            if link.codec.ready and link.failure is None:
                link.codec.close()
                await within(self._clock, _CLOSE_S, link.flush())
        except (TransportError, TimeoutError):
            pass  # the other side is gone: there is nobody to say goodbye to
        finally:
            await wire.close()
            await settle(self._clock, _CLOSE_S, timers)

    async def send(self, content: BidiMessage | AudioDelta, /) -> None:
        link, _ = self._connected()
        link.codec.send(content)
        if link.codec.outbox or link.codec.alarms:
            await self._told(link)

    async def _told(self, link: Link[CodecT]) -> None:
        """Carry out what the codec was told: for `send`, and for whatever else a provider's model offers.

        Raises:
            ConnectionEndedError: If the wire is gone. `receive` knows why.
        """
        try:
            await self._after(link)
        except TransportError as error:
            raise ConnectionEndedError(f"{self.model_id!r} is no longer connected: {error}") from error

    def _connected(self) -> tuple[Link[CodecT], Transport]:
        """The open connection, and its wire.

        Raises:
            ConnectionEndedError: If there is none, or none yet that the provider has accepted.
        """
        link = self._link
        if link is None or link.wire is None or not link.codec.ready:
            raise ConnectionEndedError(f"{self.model_id!r} is not connected: start it first")
        return link, link.wire

    async def receive(self) -> AsyncIterator[OutputEvent]:
        link, wire = self._connected()
        codec = link.codec
        early, link.early = link.early, []
        for event in early:
            yield event
        read = wire.receive
        try:
            while (frame := await read()) is not None:
                events = codec.receive(frame)
                if codec.outbox or codec.alarms:
                    self._answer(link)
                for event in events:
                    yield event
        except TransportError as error:
            if self._link is link:
                raise link.failure or codec.explain(error) from error
        else:
            if self._link is link:
                raise link.failure or codec.explain(None)

    async def _after(self, link: Link[CodecT]) -> None:
        """Do what a call of the codec asks for.

        Raises:
            TransportError: If the wire is gone.
        """
        self._set_alarms(link)
        if link.codec.outbox:
            await link.flush()

    def _answer(self, link: Link[CodecT]) -> None:
        """Do what the codec asks for after it was given something, without waiting for the wire."""
        self._set_alarms(link)
        if link.codec.outbox and self._link is link and (link.posting is None or link.posting.done()):
            link.posting = asyncio.create_task(self._post(link))  # noqa: TID251 - ended by `_end`

    async def _post(self, link: Link[CodecT]) -> None:
        with suppress(TransportError):  # what is still to be read may say why the wire is gone
            await link.flush()

    def _set_alarms(self, link: Link[CodecT]) -> None:
        if link.codec.alarms:
            alarms, link.codec.alarms = link.codec.alarms, {}
            for name, seconds in alarms.items():
                self._set_alarm(link, name, seconds)

    def _set_alarm(self, link: Link[CodecT], name: str, seconds: float | None) -> None:
        timer = link.timers.pop(name, None)
        if timer is not None and timer is not asyncio.current_task():
            timer.cancel()
        if seconds is not None and self._link is link:
            # Ended by `_end`, or by what it does.
            link.timers[name] = asyncio.create_task(self._ring(link, name, seconds))  # noqa: TID251

    async def _ring(self, link: Link[CodecT], name: str, seconds: float) -> None:
        await self._clock.sleep(seconds)
        if self._link is not link or link.wire is None:
            return
        if link.timers.get(name) is asyncio.current_task():
            del link.timers[name]
        try:
            link.codec.ring(name)
            await self._after(link)
        except TransportError:
            pass  # whoever reads the wire finds out
        except AntiphonError as error:
            link.failure = error
            await link.wire.close()  # wakes whoever reads it
