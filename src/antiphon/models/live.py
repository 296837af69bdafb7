"""What the live models of all providers share: a codec without I/O, driven over a wire.

A codec (`Codec`) turns what is sent into frames and frames into events; it knows one provider's protocol and no clock, no
socket and no loop. A model (`WiredModel`) opens the wire, hands frames back and forth, and says in the house's errors why a
wire failed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any, Generic

from typing_extensions import TypeVar

from antiphon.bounded import within
from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import AudioDelta, BidiMessage, Messages, ToolSpec
from antiphon.errors import ConnectionEndedError, ModelConnectionError, TransportError
from antiphon.events import OutputEvent
from antiphon.models.bidi import BidiModel
from antiphon.transports.base import Frame, Transport

_CLOSE_S = 2.0


class Codec(ABC):
    """One connection's protocol. Pure: what happened last decides, never the time.

    Attributes:
        outbox: Frames to send, in order. Every method may add some; the driver takes them after each call.
        ready: Whether the provider has accepted the session; `WiredModel.start` waits for it.
    """

    def __init__(self) -> None:
        self.outbox: list[Frame] = []
        self.ready = False

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


CodecT = TypeVar("CodecT", bound=Codec, default=Codec)


class WiredModel(BidiModel, Generic[CodecT]):
    """Drives a codec over a wire. A provider's model gives `_make_codec` and `_dial`.

    `receive` reads the wire itself: no task and no queue stand between the wire and the agent.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, start_timeout_s: float = 20.0) -> None:
        self._clock = clock
        self._start_timeout_s = start_timeout_s
        self._codec: CodecT | None = None
        self._wire: Transport | None = None
        self._early: list[OutputEvent] = []

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
        codec = self._make_codec(system_prompt, tools or [], messages or [], kwargs)
        self._codec, self._early = codec, []
        try:
            await within(self._clock, self._start_timeout_s, self._connect(codec))
        except TimeoutError as error:
            await self.stop()
            raise ModelConnectionError(
                f"{self.model_id!r} did not accept the session within {self._start_timeout_s} s"
            ) from error
        except BaseException:
            await self.stop()
            raise

    async def _connect(self, codec: CodecT) -> None:
        try:
            self._wire = wire = await self._dial(codec)
            codec.open()
            await _flush(codec, wire)
            while not codec.ready:
                frame = await wire.receive()
                if frame is None:
                    raise codec.explain(None)
                self._early += codec.receive(frame)
                await _flush(codec, wire)
        except TransportError as error:
            raise codec.explain(error) from error

    async def restart(
        self,
        system_prompt: str | None = None,
        tools: list[ToolSpec] | None = None,
        messages: Messages | None = None,
        **restart_config: Any,
    ) -> None:
        """Replace the connection; `restart_config` may hold what the provider needs to resume its session."""
        await self.start(system_prompt=system_prompt, tools=tools, messages=messages, **restart_config)

    async def stop(self) -> None:
        wire, self._wire = self._wire, None
        codec, self._codec = self._codec, None
        if wire is None:
            return
        try:
            if codec is not None and codec.ready:
                codec.close()
                await within(self._clock, _CLOSE_S, _flush(codec, wire))
        except (TransportError, TimeoutError):
            pass  # the other side is gone: there is nobody to say goodbye to
        finally:
            await wire.close()

    async def send(self, content: BidiMessage | AudioDelta, /) -> None:
        codec, wire = self._connected()
        codec.send(content)
        if codec.outbox:
            await self._send(codec, wire)

    async def _send(self, codec: CodecT, wire: Transport) -> None:
        try:
            await _flush(codec, wire)
        except TransportError as error:
            raise ConnectionEndedError(f"{self.model_id!r} is no longer connected: {error}") from error

    def _connected(self) -> tuple[CodecT, Transport]:
        """The codec and the wire of the open connection.

        Raises:
            ConnectionEndedError: If there is none.
        """
        if self._codec is None or self._wire is None:
            raise ConnectionEndedError(f"{self.model_id!r} is not connected: start it first")
        return self._codec, self._wire

    async def receive(self) -> AsyncIterator[OutputEvent]:
        codec, wire = self._connected()
        early, self._early = self._early, []
        for event in early:
            yield event
        try:
            while (frame := await wire.receive()) is not None:
                events = codec.receive(frame)
                if codec.outbox:
                    await _flush(codec, wire)
                for event in events:
                    yield event
        except TransportError as error:
            if self._wire is wire:
                raise codec.explain(error) from error
        else:
            if self._wire is wire:
                raise codec.explain(None)


async def _flush(codec: Codec, wire: Transport) -> None:
    """Send what is in the outbox. Frames of one call go out together, and calls in their order."""
    frames, codec.outbox = codec.outbox, []
    if frames:
        await wire.send(frames)
