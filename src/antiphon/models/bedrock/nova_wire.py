"""The wire to Nova Sonic: an HTTP/2 request whose body is a stream of signed messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from antiphon.clock import Clock
from antiphon.errors import TransportError
from antiphon.transports.base import Frame
from antiphon.transports.http2 import HTTP2Stream
from antiphon.transports.sigv4 import EventSigner

_GOODBYE_S = 0.5
"""How long the other side may take to end the session when it was asked to, by the clock on the wall."""


class SignedStream:
    """Signs each message on its way out. Implements `Transport`."""

    def __init__(self, stream: HTTP2Stream, signer: EventSigner, clock: Clock) -> None:
        self._stream = stream
        self._signer = signer
        self._clock = clock
        self._closing = False

    @property
    def request_id(self) -> str:
        """The service's name for this session, for its support; empty before `accepted`."""
        return self._stream.headers.get("x-amzn-requestid", "")

    async def accepted(self) -> None:
        """Wait until the service takes the request.

        Raises:
            TransportError: If it does not: the status is the `code`, and the `reason` begins with AWS's name for it.
        """
        try:
            await self._stream.accepted()
        except TransportError as error:
            raise self._worded(error) from error

    async def ping(self) -> None:
        """Return when the other side shows that it is there.

        Raises:
            TransportError: If the wire fails.
        """
        await self._stream.ping()

    async def send(self, frames: Sequence[Frame], /) -> None:
        # Signed and queued without a pause in between: each signature holds the one before.
        signed = [self._sign(frame.encode() if isinstance(frame, str) else frame) for frame in frames]
        await self._stream.send(signed)

    async def receive(self) -> Frame | None:
        try:
            return await self._stream.receive()
        except TransportError as error:
            raise self._worded(error) from error

    async def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        try:
            with suppress(TransportError, TimeoutError):  # nobody is there any more
                async with asyncio.timeout(_GOODBYE_S):
                    await self._goodbye()
        finally:
            await self._stream.close()

    async def _goodbye(self) -> None:
        await self._stream.send([self._sign(b"")])
        await self._stream.end()
        await self._stream.ended()

    def _sign(self, message: bytes) -> bytes:
        return self._signer.sign(message, self._clock.utc())

    def _worded(self, error: TransportError) -> TransportError:
        """A refusal's name is in a header, or in its JSON."""
        if not error.code:
            return error
        fields: dict[str, Any] = {}
        with suppress(ValueError):
            value: Any = json.loads(error.reason)
            fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        named = self._stream.headers.get("x-amzn-errortype") or str(fields.get("__type") or f"HTTP {error.code}")
        name = named.partition(":")[0].rpartition("#")[2]
        told = str(fields.get("message") or fields.get("Message") or error.reason)
        return TransportError(str(error), code=error.code, reason=f"{name}: {told}")
