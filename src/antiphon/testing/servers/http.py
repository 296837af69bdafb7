"""A small HTTP/1.1 server on loopback that a script drives: answers, streams, refusals, and lines that break."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import h11

from antiphon.jsonable import decode_json, encode_json

_LONGEST_BODY = 64 * 1024 * 1024
_READ = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPRequest:
    """A request as it came. Header names are in lower case; `target` holds path and query."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def json(self) -> Any:
        """The body as JSON."""
        return decode_json(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPResponse:
    """What is answered.

    Attributes:
        status: The status code.
        headers: Headers beside `content-length` or `transfer-encoding`.
        body: The whole body, or pieces that are sent as chunks, each as soon as it is there. A piece of None cuts the
            connection there, as a server does that dies.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | AsyncIterator[bytes | None] = b""


Handler = Callable[[HTTPRequest], Awaitable[HTTPResponse]]


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> HTTPResponse:
    """An answer in JSON."""
    return HTTPResponse(
        status=status, headers={"content-type": "application/json", **(headers or {})}, body=encode_json(value)
    )


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event: a text as it is, anything else as JSON."""
    text = data.encode() if isinstance(data, str) else encode_json(data)
    return (b"" if event is None else b"event: " + event.encode() + b"\n") + b"data: " + text + b"\n\n"


class HTTPServer:
    """Listens on a free port of 127.0.0.1 while its context is open.

    Args:
        handler: Answers a request. Called on the server's loop; requests of several connections at the same time.
        tls: Serve TLS with this context.

    Attributes:
        requests: What was asked, in order.
        port: The port, while the context is open.
    """

    def __init__(self, handler: Handler, *, tls: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self.requests: list[HTTPRequest] = []
        self.port = 0

    @property
    def url(self) -> str:
        """The server's address, without a slash at its end."""
        return f"{'https' if self._tls else 'http'}://{'localhost' if self._tls else '127.0.0.1'}:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for writer in list(self._open):
                writer.transport.abort()
            serving = [task for task in self._serving if task is not asyncio.current_task()]
            for task in serving:  # an answer may be held: nobody else would ever end it
                task.cancel()
            if serving:
                await asyncio.wait(serving)
            await server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        task = asyncio.current_task()
        if task is not None:
            self._serving.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, h11.ProtocolError):
            pass  # the client is gone, or does not speak HTTP: nothing is owed to it
        except asyncio.CancelledError:
            if self._server is not None:  # asyncio logs it when a connection's task ends by cancellation
                raise
        finally:
            self._open.discard(writer)
            if task is not None:
                self._serving.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = h11.Connection(h11.SERVER)
        while True:
            request = await _read(line, reader)
            if request is None:
                return
            self.requests.append(request)
            whole = await _write(line, writer, await self._handler(request))
            if not whole:
                writer.transport.abort()
                return
            if line.our_state is not h11.DONE:
                return
            line.start_next_cycle()


async def _read(line: h11.Connection, reader: asyncio.StreamReader) -> HTTPRequest | None:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = line.next_event()
        if event is h11.NEED_DATA:
            line.receive_data(await reader.read(_READ))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > _LONGEST_BODY:
                return None
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            return HTTPRequest(
                method=head.method.decode(),
                target=head.target.decode(),
                headers={name.decode(): value.decode() for name, value in head.headers},
                body=bytes(body),
            )
        else:
            return None


async def _write(line: h11.Connection, writer: asyncio.StreamWriter, response: HTTPResponse) -> bool:
    """Send an answer; False if it was to be cut."""
    headers = dict(response.headers)
    if isinstance(response.body, bytes):
        headers["content-length"] = str(len(response.body))
    else:
        headers["transfer-encoding"] = "chunked"
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    writer.write(line.send(h11.Response(status_code=response.status, headers=pairs)) or b"")
    if isinstance(response.body, bytes):
        writer.write(line.send(h11.Data(data=response.body)) or b"")
    else:
        async for piece in response.body:
            if piece is None:
                await writer.drain()
                return False
            writer.write(line.send(h11.Data(data=piece)) or b"")
            await writer.drain()
    writer.write(line.send(h11.EndOfMessage()) or b"")
    await writer.drain()
    return True
