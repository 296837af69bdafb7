"""The connection that a boto3 request waits on, so that the request can be cut from another thread.

boto3 blocks in a read, for as long as the model thinks, and offers no way to end that. Closing the file descriptor does not
wake a reader; `shutdown` on the socket does. So the pools of a client are given connections that say who uses them.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, cast


class Line:
    """One request's way to the provider. Both threads use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._cut = False

    @property
    def is_cut(self) -> bool:
        """Whether nobody waits for the request any more."""
        return self._cut

    def hold(self, connected: socket.socket | None) -> None:
        """From the request's thread: this is the socket it will read from.

        Raises:
            ConnectionAbortedError: If the line was cut meanwhile.
        """
        with self._lock:
            self._socket = connected
            if self._cut:
                raise ConnectionAbortedError("the request was cancelled")

    def cut(self) -> None:
        """End the request, whatever it waits for: its thread gets an error from its read at once.

        While a connection is being made, it ends when that has come to its end (or to `connect_timeout`).
        """
        with self._lock:
            self._cut = True
            if self._socket is not None:
                with suppress(OSError):  # closed already
                    # Of the plain socket: SSLSocket.shutdown would pull the TLS object from under the reader.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


CURRENT: ContextVar[Line | None] = ContextVar("antiphon_bedrock_line", default=None)
"""The line of the request that this thread makes."""


class _Held:
    """Stands before urllib3's connection class, and tells the current line of its socket."""

    sock: socket.socket | None

    def connect(self) -> None:
        cast("Any", super()).connect()
        self._tell()

    def request(self, *args: Any, **kwargs: Any) -> Any:
        self._tell()  # a connection that was kept alive is not connected again
        return cast("Any", super()).request(*args, **kwargs)

    def _tell(self) -> None:
        line = CURRENT.get()
        if line is not None:
            line.hold(getattr(self, "sock", None))


def hold_connections(client: Any) -> bool:
    """Let the connections of a boto3 client tell the current line.

    botocore offers no public way to this. Where a version of it is built otherwise, False is returned: a request that is
    cut then ends with the next bytes that come, or with `read_timeout`.
    """
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    pools: Any = getattr(session, "_pool_classes_by_scheme", None)
    if not isinstance(pools, dict):
        return False
    known = cast("dict[str, Any]", pools)
    for scheme, pool in list(known.items()):
        connection = getattr(pool, "ConnectionCls", None)
        if connection is None:
            return False
        if not issubclass(connection, _Held):
            held = type(connection.__name__, (_Held, connection), {})
            known[scheme] = type(pool.__name__, (pool,), {"ConnectionCls": held})
    return True
