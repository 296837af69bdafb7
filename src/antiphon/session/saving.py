"""Carrying saves out, and what their failure means."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from antiphon.bounded import within
from antiphon.clock import Clock
from antiphon.errors import SessionSaveError
from antiphon.hooks.events import SessionSaveFailedEvent
from antiphon.local_agent import LocalAgent
from antiphon.session.health import SaveHealth
from antiphon.session.keeper import Keeper
from antiphon.session.retry import pause_after

ATTEMPT_BOUND_S = 2.0
"""How long a save that is tried again later may hold up the hooks of a call."""
STOP_BOUND_S = 5.0
"""How long the end of a call tries to save what could not be saved before."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Save:
    """What is to be written.

    Attributes:
        latest: The latest snapshot.
        journal: The journal, if it has changed.
        checkpoint: A new immutable snapshot.
    """

    latest: bool = False
    journal: bool = False
    checkpoint: bool = False

    def __bool__(self) -> bool:
        return self.latest or self.journal or self.checkpoint


class Saver:
    """Carries a session's saves out.

    Args:
        session_id: The session, for messages to people.
        clock: For dates and pauses.

    Attributes:
        health: How the saves are doing; `behind` is for whoever knows all keepers.
    """

    def __init__(self, session_id: str, clock: Clock) -> None:
        self.session_id = session_id
        self.clock = clock
        self.health = SaveHealth()

    def succeeded(self) -> None:
        """Something was saved."""
        self.health = self.health.with_save(self.clock.utc())

    def failed(self, keeper: Keeper, error: Exception) -> None:
        """A save failed."""
        keeper.failures += 1
        self.health = self.health.with_error(error)

    async def attempt(self, agent: LocalAgent, keeper: Keeper, save: Save, *, owe: bool = False) -> str | None:
        """Save once. Returns the id of the checkpoint.

        Args:
            agent: The agent.
            keeper: Its keeper.
            save: What.
            owe: Whether a checkpoint that fails is owed by the next save.

        Raises:
            Exception: What the save raised.
        """
        try:
            snapshot_id = await keeper.save(
                agent, latest=save.latest, journal=save.journal, checkpoint=save.checkpoint, owe=owe
            )
        except Exception as error:
            self.failed(keeper, error)
            raise
        self.succeeded()
        return snapshot_id

    async def save_or_raise(self, agent: LocalAgent, keeper: Keeper, save: Save, result: object = None) -> None:
        """Save because an event says so.

        Raises:
            SessionSaveError: If it failed. It carries `result`.
        """
        try:
            await self.attempt(agent, keeper, save, owe=True)
        except Exception as error:
            raise self._save_error(agent, error, result) from error

    async def save_or_retry(self, agent: LocalAgent, keeper: Keeper, save: Save, whole: Save) -> None:
        """Save because an event says so; when it fails, go on trying beside the conversation, with the newest state.

        Args:
            agent: The agent.
            keeper: Its keeper.
            save: What, now.
            whole: What brings everything up to date, later.
        """
        if keeper.retrier.running:
            keeper.checkpoint_owed = keeper.checkpoint_owed or save.checkpoint
            keeper.asked += 1
            return  # its next attempt saves the newest state

        async def again() -> bool:
            while True:
                asked = keeper.asked
                if await self._attempt_and_tell(agent, keeper, whole) is not None:
                    return False
                if keeper.asked == asked and not keeper.checkpoint_owed:
                    return True  # nothing was asked for since it looked at the agent

        deadline = self.clock.now() + ATTEMPT_BOUND_S
        if await self._attempt_and_tell(agent, keeper, save, deadline) is not None:
            keeper.retrier.start(again, keeper.failures)

    async def save_within_bound(self, agent: LocalAgent, keeper: Keeper, save: Save) -> None:
        """Save at the end of a call, trying again for at most `STOP_BOUND_S`.

        Raises:
            SessionSaveError: If it could not be done.
        """
        deadline = self.clock.now() + STOP_BOUND_S
        while (error := await self._attempt_and_tell(agent, keeper, save, deadline)) is not None:
            save = replace(save, checkpoint=False)  # what is not written yet is owed
            pause = pause_after(keeper.failures)
            if self.clock.now() + pause >= deadline:
                raise self._save_error(agent, error, None) from error
            await self.clock.sleep(pause)

    async def _attempt_and_tell(
        self, agent: LocalAgent, keeper: Keeper, save: Save, deadline: float | None = None
    ) -> Exception | None:
        """Save once. Returns what went wrong, after everybody was told."""

        async def attempt() -> None:
            await self.attempt(agent, keeper, save, owe=True)

        try:
            if deadline is None:
                await attempt()
            else:
                await within(self.clock, deadline - self.clock.now(), attempt())
        except Exception as error:  # noqa: BLE001 - whatever a storage raises is told, and tried again
            if isinstance(error, TimeoutError):
                self.failed(keeper, error)
            await self._tell(agent, keeper, error)
            return error
        return None

    def _save_error(self, agent: LocalAgent, error: Exception, result: object) -> SessionSaveError:
        told = f"session {self.session_id!r}, agent {agent.agent_id!r} could not be saved: {error}"
        return SessionSaveError(told, result)

    async def _tell(self, agent: LocalAgent, keeper: Keeper, error: Exception) -> None:
        # The traceback once: the attempts that follow tell the same story.
        traceback = error if keeper.failures == 1 else None
        _log.warning(
            "session %r: save failed (attempt %d): %s", self.session_id, keeper.failures, error, exc_info=traceback
        )
        event: SessionSaveFailedEvent[LocalAgent] = SessionSaveFailedEvent(
            agent=agent, error=error, attempt=keeper.failures
        )
        try:
            await agent.hooks.invoke_callbacks_async(event)
        except Exception:  # noqa: BLE001 - a listener is the user's code, and must not end the retries
            _log.exception("session %r: a listener of SessionSaveFailedEvent raised", self.session_id)
