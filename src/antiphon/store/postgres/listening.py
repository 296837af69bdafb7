"""Changes that others make: one connection a process and database waits for notifications, and polls beside that."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

import psycopg
from psycopg import sql

from antiphon.store.backend import Wake
from antiphon.store.postgres.driver import Connection
from antiphon.store.postgres.view import read_payload

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0

_LINGER_S = 10.0
"""How long the connection stays when nobody waits any more: queues for sessions come and go."""

_EXIT_S = 2.0


class Server(Protocol):
    """Where to listen."""

    @property
    def server(self) -> Hashable:
        """Equal for one server and database."""
        ...

    def open_another(self) -> Connection:
        """A connection to keep, in autocommit mode."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class _Subscription:
    channel: str
    wake: Wake
    poll_interval: float


class _Listener:
    """A thread with a connection, for as long as anybody subscribes."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._subscriptions: list[_Subscription] = []
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._is_over = False
        self._thread = threading.Thread(target=self._work, name="antiphon-postgres-listens", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def add(self, subscription: _Subscription) -> bool:
        """Take it in; False when this listener has ended."""
        with self._lock:
            if self._is_over:
                return False
            self._subscriptions.append(subscription)
            self._poke()
            return True

    def remove(self, subscription: _Subscription) -> None:
        """Forget it."""
        with self._lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
                if not self._is_over:
                    self._poke()

    def end(self) -> None:
        """End although somebody subscribes; waits a moment for the thread."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            self._subscriptions.clear()
            self._poke()
        self._thread.join(_EXIT_S)

    def _poke(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is full: the thread is about to read it anyway
            os.write(self._writing, b".")

    def _work(self) -> None:
        pause = _FIRST_PAUSE_S
        try:
            while self._goes_on():
                try:
                    connection = self._server.open_another()
                except psycopg.Error:
                    self._wait(None, pause)
                    pause = min(pause * 2, _LONGEST_PAUSE_S)
                    continue
                pause = _FIRST_PAUSE_S
                try:
                    self._listen(connection)
                except psycopg.Error:
                    self._wait(None, pause)
                finally:
                    connection.close()
        finally:
            with self._lock:
                self._is_over = True
                os.close(self._reading)
                os.close(self._writing)

    def _goes_on(self) -> bool:
        """Whether anybody subscribes. If nobody does, this listener takes no one in any more."""
        with self._lock:
            self._is_over = self._is_over or not self._subscriptions
            return not self._is_over

    def _listen(self, connection: Connection) -> None:
        """Work with a connection until it breaks, or nobody has subscribed for a while."""
        heard: set[str] = set()
        while True:
            with self._lock:
                if self._is_over:
                    return
                subscriptions = list(self._subscriptions)
            for channel in sorted({subscription.channel for subscription in subscriptions} - heard):
                connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                heard.add(channel)
                # What happened before is told to nobody: look again.
                _wake([each for each in subscriptions if each.channel == channel], None, None)
            for notice in connection.notifies(timeout=0):
                told = [each for each in subscriptions if each.channel == notice.channel]
                _wake(told, *read_payload(notice.payload))
            patience = min((each.poll_interval for each in subscriptions), default=_LINGER_S)
            if not self._wait(connection, patience):
                if not subscriptions and not self._goes_on():
                    return
                _wake(subscriptions, None, None)

    def _wait(self, connection: Connection | None, seconds: float) -> bool:
        """Wait for news; whether there are any."""
        readers: list[int] = [self._reading] if connection is None else [self._reading, connection.fileno()]
        ready, _, _ = select.select(readers, [], [], seconds)
        if self._reading in ready:
            os.read(self._reading, 4096)
        return bool(ready)


def _wake(subscriptions: list[_Subscription], tenant: str | None, name: str | None) -> None:
    for subscription in subscriptions:
        subscription.wake(tenant, name)


class _Listeners:
    """Those of this process, by server."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_server: dict[Hashable, _Listener] = {}


_listeners = _Listeners()
_inherited: list[_Listeners] = []
"""A parent's, in a forked child: their threads are not here, and their connections are the parent's."""


def subscribe(server: Server, channel: str, wake: Wake, poll_interval: float) -> Callable[[], None]:
    """Call `wake` for what is notified on a channel, and every `poll_interval` seconds, until the returned function is called."""
    subscription = _Subscription(channel, wake, poll_interval)
    with _listeners.lock:
        listener = _listeners.by_server.get(server.server)
        if listener is None or not listener.add(subscription):
            listener = _listeners.by_server[server.server] = _Listener(server)
            listener.add(subscription)
            listener.start()
    return lambda: listener.remove(subscription)


def _end_all() -> None:
    for listener in list(_listeners.by_server.values()):
        listener.end()


def _renew_after_fork() -> None:
    global _listeners  # noqa: PLW0603 - the parent's lock may be held by a thread that does not exist here
    _inherited.append(_listeners)
    _listeners = _Listeners()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_renew_after_fork)
