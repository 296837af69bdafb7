"""One HTTP/2 request whose body and whose answer go on at the same time, on the package `h2`.

A protocol of the event loop, and no task: what the network brings is dealt with when it comes, so that pings, settings and
windows are answered although nobody receives, and a sender that waits for room is served although nobody reads.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from antiphon.errors import InvalidInputError, MissingExtraError, TransportError
from antiphon.iothread import run_in_worker
from antiphon.transports.base import Frame

if TYPE_CHECKING:
    from h2.connection import H2Connection
    from h2.events import Event

_WINDOW = 256 * 1024
"""Bytes that may come before anybody has taken them."""
_LONGEST_FRAME = 16384
_LONGEST_REFUSAL = 64 * 1024
_DEAD_AFTER_MS = 20_000
"""How long the other side's machine may leave what was sent unconfirmed."""
_GOAWAY = 7
_CLOSE_S = 1.0
_CONFIDENTIAL = ("authorization", "token", "cookie", "key")
"""What the names of headers have in them whose values are told to nobody."""
_SHORTEST_SECRET = 16


def require(extra: str) -> None:
    """Make sure that the package `h2` is there.

    Raises:
        MissingExtraError: If it is not installed; the error names `extra`.
    """
    if find_spec("h2") is None:
        raise MissingExtraError("h2", extra)


class HTTP2Stream:
    """An open request: bytes go out as its body and come in as its answer, cut anywhere. Implements `Transport`.

    Attributes:
        headers: The answer's headers, names in lower case; empty before it has begun.
    """

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire

    @property
    def headers(self) -> dict[str, str]:
        """The answer's headers, names in lower case; empty before it has begun."""
        return self._wire.headers

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        method: str = "POST",
        headers: Sequence[tuple[str, str]] = (),
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 20.0,
    ) -> Self:
        """Connect and send the head of the request; the answer may come much later (`accepted`).

        Args:
            url: An `https:` address; `http:` (HTTP/2 by prior knowledge) for loopback only. It is told in errors: put no
                secret into it. The path is sent as it stands.
            method: The request's method.
            headers: Sent in this order, names in lower case, without `host`; never told.
            tls: Trusts whom `https:` is to trust, and is told to offer `h2`; None: what the system trusts.
            timeout_s: Time for the handshakes of TCP and TLS, in seconds.

        Raises:
            InvalidInputError: If the address is of another kind.
            TransportError: With `opened` False: the name is unknown, nobody listens, TLS is refused, or the server does not
                speak HTTP/2.
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        secure = parts.scheme == "https"
        if not host or not (secure or (parts.scheme == "http" and _is_loopback(host))):
            raise InvalidInputError(f"url={url!r} is not an https address (http is for loopback only)")
        context = None
        if secure:
            # On another thread: it reads what the system trusts, which takes longer than sound may wait.
            context = await run_in_worker(ssl.create_default_context) if tls is None else tls
            context.set_alpn_protocols(["h2"])
        try:
            async with asyncio.timeout(timeout_s):
                _, wire = await asyncio.get_running_loop().create_connection(
                    _Wire, host, parts.port or (443 if secure else 80), ssl=context
                )
        except (OSError, TimeoutError, ValueError) as error:
            told = str(error) or f"no answer within {timeout_s:g} s"
            raise TransportError(f"{url} cannot be reached: {told}", reason=told, opened=False) from error
        if secure and wire.protocol_chosen != "h2":
            wire.abort()
            raise TransportError(f"{url} does not offer HTTP/2", reason="no HTTP/2", opened=False)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        head = [(":method", method), (":scheme", parts.scheme), (":authority", parts.netloc), (":path", target)]
        wire.request([*head, *headers])
        return cls(wire)

    async def accepted(self) -> None:
        """Wait for the head of the answer.

        Raises:
            TransportError: If the status is not 2xx: it is the `code`, and the answer's body the `reason`. If the wire fails.
        """
        wire = self._wire
        await wire.until(lambda: wire.status > 0 or wire.over)
        if wire.status and not 200 <= wire.status < 300:
            await wire.until(lambda: wire.over or wire.held > _LONGEST_REFUSAL)
            # A service may repeat what it was told, to say what is wrong with it.
            reason = wire.discreet(wire.take().decode("utf-8", "replace")[:_LONGEST_REFUSAL])
            raise TransportError(
                f"the request was refused with HTTP status {wire.status}: {reason}", code=wire.status, reason=reason
            )
        if not wire.status and wire.error is not None:
            raise wire.error

    async def send(self, frames: Sequence[Frame], /) -> None:
        """Send bytes. Returns when the network has taken them; whoever is cancelled meanwhile has sent them all the same.

        Raises:
            TransportError: If the wire is closed, or `end` was called.
        """
        wire = self._wire
        wire.check()
        end = wire.add(b"".join(frame.encode() if isinstance(frame, str) else frame for frame in frames))
        await wire.until(lambda: (wire.sent >= end and not wire.paused) or wire.over)
        if wire.sent < end:
            wire.check()

    async def end(self) -> None:
        """Say that the body is complete, and wait until the network has taken it. Safe to call twice.

        Raises:
            TransportError: If the wire fails meanwhile.
        """
        wire = self._wire
        wire.end()
        await wire.until(lambda: not wire.waiting or wire.over)
        if wire.error is not None:
            raise wire.error

    async def ping(self) -> None:
        """Return when the other side has answered a ping.

        Raises:
            TransportError: If the wire is closed.
        """
        wire = self._wire
        wire.check()
        number = wire.ping()
        await wire.until(lambda: wire.pings[number] or wire.over)
        if not wire.pings[number]:
            wire.check()

    async def receive(self) -> Frame | None:
        """What has come since the last call; None when the answer is complete.

        Raises:
            TransportError: As `accepted`; or the stream was reset, or the connection closed or broken.
        """
        wire = self._wire
        await self.accepted()
        await wire.until(lambda: wire.held > 0 or wire.over)
        if wire.held:
            return wire.take()
        if wire.error is not None:
            raise wire.error
        return None

    async def ended(self) -> None:
        """Wait until the answer is complete or the wire has failed; what comes meanwhile is thrown away."""
        wire = self._wire
        while not wire.over:
            await wire.until(lambda: wire.held > 0 or wire.over)
            wire.take()

    async def close(self) -> None:
        """Close the connection. What the network has not taken yet is lost: `end` first."""
        await self._wire.close()


class _Wire(asyncio.Protocol):
    """The connection.

    Attributes:
        status: The answer's status; 0 before it has begun.
        headers: Its headers.
        held: Bytes that came and were not taken.
        ended: Whether the answer is complete.
        error: Why the wire failed.
        pings: Of each ping, whether it was answered.
        sent: Bytes of the body that were handed to the network.
    """

    def __init__(self) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection

        if (log := logging.getLogger("hpack")).level == logging.NOTSET:
            log.setLevel(logging.INFO)  # at DEBUG it writes down every header, keys among them
        self._h2: H2Connection = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._transport: asyncio.Transport | None = None
        self._frames = _Frames()
        self._out = bytearray()
        self._ending = False
        self._paused = False
        self._told: tuple[str, ...] = ()
        self._held: deque[tuple[bytes, int]] = deque()
        self._waiters: set[asyncio.Future[None]] = set()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False
        self.error: TransportError | None = None
        self.pings: list[bool] = []
        self.sent = 0

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what create_connection makes
        self._transport = transport
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            # Without it a network that swallows everything is noticed after a quarter of an hour.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_AFTER_MS)

    def data_received(self, data: bytes) -> None:
        from h2.exceptions import H2Error

        try:
            for frame in self._frames.feed(data):
                for event in self._h2.receive_data(frame):
                    self._take(event)
        except TransportError as error:
            self._fail(error)
        except H2Error as error:
            self._fail(TransportError(f"the other side breaks the rules of HTTP/2: {error}", reason=str(error)))
        self._pump()
        self._wake()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._pump()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        told = str(exc) if exc is not None else ""
        self._fail(TransportError("the connection broke off" + (f": {told}" if told else ""), reason=told))

    # What the stream calls.

    @property
    def protocol_chosen(self) -> str | None:
        """What TLS has agreed on."""
        tls: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object") if self._transport else None
        return tls.selected_alpn_protocol() if tls is not None else None

    @property
    def over(self) -> bool:
        """Whether nothing more comes."""
        return self.ended or self.error is not None

    @property
    def held(self) -> int:
        """Bytes that came and were not taken."""
        return sum(len(data) for data, _ in self._held)

    @property
    def paused(self) -> bool:
        """Whether the network has enough to do."""
        return self._paused

    @property
    def waiting(self) -> bool:
        """Whether something that was added is not sent yet, or the network is not ready for more."""
        return bool(self._out) or self._paused

    def check(self) -> None:
        """Raise if nothing can be sent.

        Raises:
            TransportError: Why.
        """
        if self.error is not None:
            raise self.error
        if self.ended or self._ending:
            raise TransportError("the request is complete: nothing more can be sent")

    def request(self, headers: list[tuple[str, str]]) -> None:
        """Greet the server and send the head of the one request."""
        from h2.settings import SettingCodes, Settings

        self._h2.local_settings = Settings(
            client=True, initial_values={SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW, SettingCodes.ENABLE_PUSH: 0}
        )
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW)
        self._told = tuple(value for name, value in headers if any(word in name for word in _CONFIDENTIAL))
        self._h2.send_headers(_STREAM, headers)
        self._flush()

    def discreet(self, text: str) -> str:
        """A text of the server's, without what it was told in the headers."""
        for value in self._told:
            for word in (value, *value.replace("=", " ").replace(",", " ").split()):
                if len(word) >= _SHORTEST_SECRET:
                    text = text.replace(word, "(not shown)")
        return text

    def add(self, data: bytes) -> int:
        """Send `data` as soon as there is room for it. Returns what `sent` will be then."""
        self._out += data
        end = self.sent + len(self._out)
        self._pump()
        return end

    def end(self) -> None:
        """End the body behind what was added."""
        if not self._ending:
            self._ending = True
            self._pump()

    def ping(self) -> int:
        """Send a ping. Returns which one this is."""
        self.pings.append(False)
        self._h2.ping(len(self.pings).to_bytes(8, "big"))
        self._flush()
        return len(self.pings) - 1

    def take(self) -> bytes:
        """What has come; the other side may send as much again."""
        data = b"".join(data for data, _ in self._held)
        length = sum(length for _, length in self._held)
        self._held.clear()
        if length and self.error is None and self._transport is not None:
            self._h2.acknowledge_received_data(length, _STREAM)
            self._flush()
        return data

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds."""
        while not condition():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    async def close(self) -> None:
        """Say goodbye and close the connection; it is gone when this returns."""
        if self._transport is None:
            return
        if self.error is None:
            self._h2.close_connection()
            self._flush()
        transport = self._transport
        transport.close()
        self.error = self.error or TransportError("the connection was closed")
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self.until(lambda: self._transport is None)
        except TimeoutError:
            transport.abort()  # it does not take the goodbye

    def abort(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    # Within.

    def _take(self, event: Event) -> None:
        from h2 import events

        match event:
            case events.ResponseReceived():
                headers = {_text(name): _text(value) for name, value in event.headers}
                status = headers.pop(":status", "")
                self.status, self.headers = int(status) if status.isdecimal() else 0, headers
                if not self.status:
                    self._fail(TransportError(f"the answer has the status {status!r}", reason="no status"))
            case events.DataReceived():
                self._held.append((event.data, event.flow_controlled_length))
            case events.StreamEnded():
                self.ended = True
            case events.StreamReset() if not self.ended:
                name = _code(event.error_code)
                self._fail(TransportError(f"the other side reset the stream ({name})", reason=f"RST_STREAM {name}"))
            case events.ConnectionTerminated():
                name = _code(event.error_code)
                told = (event.additional_data or b"").decode("utf-8", "replace")
                self._fail(
                    TransportError(
                        f"the other side closed the connection ({name})" + (f": {told}" if told else ""),
                        reason=f"GOAWAY {name} {told}".rstrip(),
                    )
                )
            case events.PingAckReceived():
                number = int.from_bytes(event.ping_data, "big") - 1
                if 0 <= number < len(self.pings):
                    self.pings[number] = True
            case _:
                pass  # windows and settings: `_pump` sees what they allow; h2 answers pings itself

    def _fail(self, error: TransportError) -> None:
        if not self.over:
            self.error = error
        self._out.clear()
        self._flush()
        if self._transport is not None:
            self._transport.close()
        self._wake()

    def _pump(self) -> None:
        from h2.exceptions import H2Error

        if self.error is not None or self._transport is None:
            return
        try:
            while self._out and not self._paused:
                room = min(
                    self._h2.local_flow_control_window(_STREAM), self._h2.max_outbound_frame_size, len(self._out)
                )
                if room <= 0:
                    break
                self._h2.send_data(_STREAM, bytes(self._out[:room]))
                del self._out[:room]
                self.sent += room
                self._flush()
            if self._ending and not self._out and not self._h2.streams[_STREAM].closed:
                self._end_body()
        except H2Error:
            self._out.clear()  # the other side has closed the stream meanwhile: nobody reads this
        self._flush()

    def _end_body(self) -> None:
        from h2.stream import StreamState

        state = self._h2.streams[_STREAM].state_machine.state
        if state in {StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE}:
            self._h2.end_stream(_STREAM)

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


_STREAM = 1


class _Frames:
    """Cuts a connection's bytes into frames, and keeps back the goodbyes that do not concern the request.

    A server that is about to restart says GOAWAY and serves its open streams to their end (RFC 9113, section 6.8); h2
    counts the connection as closed from there on.
    """

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are whole now.

        Raises:
            TransportError: If a frame is longer than is allowed, as when the server speaks another protocol.
        """
        self._held += data
        while len(self._held) >= 9:
            length = int.from_bytes(self._held[:3], "big")
            if length > _LONGEST_FRAME:
                raise TransportError("the other side does not speak HTTP/2", reason="no HTTP/2")
            if len(self._held) < 9 + length:
                return
            frame = bytes(self._held[: 9 + length])
            del self._held[: 9 + length]
            if not _lets_us_finish(frame):
                yield frame


def _lets_us_finish(frame: bytes) -> bool:
    if frame[3] != _GOAWAY or len(frame) < 17:
        return False
    last_stream, error = int.from_bytes(frame[9:13], "big") & 0x7FFF_FFFF, int.from_bytes(frame[13:17], "big")
    return error == 0 and last_stream >= _STREAM


def _code(code: int | None) -> str:
    from h2.errors import ErrorCodes

    try:
        return ErrorCodes(code or 0).name
    except ValueError:
        return f"error {code}"


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _is_loopback(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")
