"""A websocket to a provider, on the package `websockets`."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from antiphon.errors import MissingExtraError, TransportError
from antiphon.transports.base import Frame

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.exceptions import ConnectionClosed

_CLOSE_S = 2.0
_LONGEST_REASON = 2000
_SHORTEST_SECRET = 8
_GIVEN_UP = 1002
"""Close codes from here on are no goodbyes (RFC 6455, section 7.4.1)."""


class _Discreet(logging.LoggerAdapter[logging.Logger]):
    """Keeps the package from writing down each header and frame: keys and conversations would be among them."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name is the standard library's
        return level > logging.DEBUG and super().isEnabledFor(level)

    def debug(self, msg: object, *args: Any, **kwargs: Any) -> None:
        pass


_log = _Discreet(logging.getLogger(__name__), {})


def require(extra: str) -> None:
    """Make sure that the package `websockets` is there.

    Raises:
        MissingExtraError: If it is not installed; the error names `extra`.
    """
    if find_spec("websockets") is None:
        raise MissingExtraError("websockets", extra)


class WebSocket:
    """An open websocket. Text frames are `str`, binary ones `bytes`."""

    def __init__(self, connection: ClientConnection, headers: Mapping[str, str] | None = None) -> None:
        self._connection = connection
        self._headers = headers
        self._lock = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 20.0,
        ping_timeout_s: float | None = 20.0,
    ) -> Self:
        """Dial.

        Args:
            url: A `ws:` or `wss:` address. It is told in errors: put no secret into it.
            headers: Sent with the handshake; never told.
            tls: Trusts whom `wss:` is to trust; None: what the system trusts.
            timeout_s: Time for the handshake, in seconds.
            ping_timeout_s: How long a pong may take before the wire counts as dead; None: for ever.

        Raises:
            TransportError: With `opened` False: the name is unknown, nobody listens, TLS is refused, or the server
                answers the handshake with another HTTP status, which is then the `code`, its body the `reason`.
        """
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidHandshake, InvalidProxy, InvalidStatus, InvalidURI

        try:
            connection = await connect(
                url,
                additional_headers=dict(headers or {}),
                ssl=(tls or True) if url.startswith("wss:") else None,
                max_size=None,
                compression=None,
                open_timeout=timeout_s,
                ping_timeout=ping_timeout_s,
                close_timeout=_CLOSE_S,
                user_agent_header=None,
                proxy=None if _is_loopback(url) else True,
                logger=_log,
            )
        except InvalidStatus as error:
            answer = error.response
            reason = _discreet(bytes(answer.body or b"").decode("utf-8", "replace")[:_LONGEST_REASON], headers)
            raise TransportError(
                f"{url} refused the connection with HTTP status {answer.status_code}: {reason}",
                code=answer.status_code,
                reason=reason,
                opened=False,
            ) from error
        except InvalidProxy:
            connection = None  # its words have the proxy's address, and often a password, in them
        except (OSError, TimeoutError, ValueError, InvalidHandshake, InvalidURI) as error:
            told = str(error) or type(error).__name__
            raise TransportError(f"{url} cannot be reached: {told}", reason=told, opened=False) from error
        if connection is None:
            told = "the proxy that the environment names cannot be used: look at HTTPS_PROXY, ALL_PROXY and NO_PROXY"
            raise TransportError(f"{url} cannot be reached: {told}", reason=told, opened=False)
        return cls(connection, headers)

    async def send(self, frames: Sequence[Frame], /) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            async with self._lock:
                for frame in frames:
                    await self._connection.send(frame)
            return
        except ConnectionClosed as error:
            broken, cause = self._broken(error)
        raise broken from cause

    async def receive(self) -> Frame | None:
        from websockets.exceptions import ConnectionClosed, ConnectionClosedOK

        try:
            return await self._connection.recv()
        except ConnectionClosedOK:
            return None
        except ConnectionClosed as error:
            broken, cause = self._broken(error)
        raise broken from cause

    def _broken(self, error: ConnectionClosed) -> tuple[TransportError, Exception | None]:
        """Why the connection ended, and what says so, unless it repeats what the server was told of who asks."""
        close, sent = error.rcvd, error.sent
        if sent is not None and sent.code >= _GIVEN_UP and not error.rcvd_then_sent:
            # By this side: no pong came, or what came breaks the protocol. The other side's answer says nothing of its own.
            told = f"the connection was given up: {sent.reason or sent.code}"
            return TransportError(told, reason=sent.reason), error
        if close is None:
            return TransportError("the connection broke off without a word", reason=str(error)), error
        reason = _discreet(close.reason, self._headers)
        told = f"the other side closed the connection with code {close.code}: {reason}"
        return TransportError(told, code=close.code, reason=reason), error if reason == close.reason else None

    async def close(self) -> None:
        await self._connection.close()


def _discreet(text: str, headers: Mapping[str, str] | None) -> str:
    """What a server answers, without what it was told of who asks."""
    for value in (headers or {}).values():
        for word in (value, *value.split()):
            if len(word) >= _SHORTEST_SECRET:
                text = text.replace(word, "(not shown)")
    return text


def _is_loopback(url: str) -> bool:
    host = url.partition("://")[2].partition("/")[0]
    return host.startswith(("127.", "localhost", "[::1]"))
