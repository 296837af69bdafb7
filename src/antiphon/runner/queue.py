"""Runs on one session, one after the other, in the order in which they came; across processes."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from antiphon.bounded import within
from antiphon.clock import Clock
from antiphon.errors import LeaseLostError, QueueFullError, QueueTimeoutError, SessionStoreError
from antiphon.ids import new_uuid7
from antiphon.store.base import Lease, SessionLease

_TTL_S = 30.0
"""How long a process that died keeps others waiting."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionQueue:
    """Lets one run after the other work on a session.

    Attributes:
        store: Keeps the queue.
        clock: Bounds the waiting.
        timeout: Seconds that a run waits.
        limit: How many runs of this process may wait for one session.
    """

    store: SessionLease
    clock: Clock
    timeout: float
    limit: int
    _waiting: Counter[str] = field(default_factory=Counter[str])

    @asynccontextmanager
    async def turn(self, session_id: str) -> AsyncGenerator[None, None]:
        """Wait for one's turn, and have it.

        Raises:
            QueueFullError: If too many wait already.
            QueueTimeoutError: If it took too long.
            SessionStoreError: What the store raised.
        """
        owner = new_uuid7()
        if self._waiting[session_id] >= self.limit:
            raise QueueFullError(f"{self.limit} runs wait for session {session_id!r} already")
        self._waiting[session_id] += 1
        try:
            lease = await within(
                self.clock, self.timeout, self.store.acquire_lease(session_id, owner=owner, ttl=_TTL_S)
            )
        except TimeoutError as error:
            raise QueueTimeoutError(f"session {session_id!r} was not free within {self.timeout:g} s") from error
        finally:
            self._waiting[session_id] -= 1
            if not self._waiting[session_id]:
                del self._waiting[session_id]
        assert lease is not None  # noqa: S101 - None is for those who do not wait
        # Ended below.
        keeper = asyncio.create_task(self._keep(lease), name="lease")  # noqa: TID251
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.wait({keeper})
            try:
                await self.store.release_lease(lease)
            except SessionStoreError as error:  # the run has its outcome; the turn ends by itself
                _log.warning("the turn on session %r could not be given back: %s", session_id, error)

    async def _keep(self, lease: Lease) -> None:
        while True:
            await self.clock.sleep(_TTL_S / 3)
            try:
                lease = await self.store.renew_lease(lease, ttl=_TTL_S)
            except LeaseLostError:
                # Another run may have its turn now; whichever of the two saves second is refused.
                _log.warning("the turn on session %r was over before its run was", lease.session_id)
                return
            except SessionStoreError as error:
                _log.warning("the turn on session %r could not be kept: %s", lease.session_id, error)
