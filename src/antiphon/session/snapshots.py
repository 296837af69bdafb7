"""Sessions as snapshots: a newest one that is overwritten, and a history of those that are not."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Literal, Protocol, get_args, runtime_checkable
from weakref import WeakKeyDictionary

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import Message
from antiphon.errors import InvalidInputError, InvalidTypeError, StorageError
from antiphon.hooks.events import (
    AfterInvocationEvent,
    AgentInitializedEvent,
    BidiAgentStopEvent,
    BidiBeforeConnectionRestartEvent,
    JournalChangedEvent,
    MessageAddedEvent,
    MessageUpdatedEvent,
)
from antiphon.hooks.registry import HookOrder, HookRegistry
from antiphon.ids import check_id
from antiphon.local_agent import AgentT_contra
from antiphon.session.base import SessionManager
from antiphon.session.blob_target import BlobTarget
from antiphon.session.health import SaveHealth
from antiphon.session.keeper import Keeper
from antiphon.session.layout import NAMESPACE
from antiphon.session.row_target import RowTarget
from antiphon.session.saving import Save, Saver
from antiphon.session.target import Found, Target
from antiphon.storage.base import Storage
from antiphon.storage.file import LocalFileStorage
from antiphon.storage.namespace import resolve_namespace
from antiphon.store.base import SessionStore

SaveLatestStrategy = Literal["message", "invocation", "trigger"]
OnSaveError = Literal["raise", "retry"]

_log = logging.getLogger(__name__)


@runtime_checkable
class SnapshotTrigger(Protocol[AgentT_contra]):
    """Decides, at a completion boundary, whether an immutable checkpoint is written."""

    def __call__(self, *, agent_data: AgentT_contra, **kwargs: Any) -> bool | Awaitable[bool]:
        """Whether to write one.

        Args:
            agent_data: The agent that has just completed an invocation or a call.
            **kwargs: Room for what later versions pass.
        """
        ...


class SnapshotSessionManager(SessionManager[AgentT_contra]):
    """Saves agents as snapshots in a storage or a session store, and restores them.

    When an agent is constructed, its latest snapshot is restored, and what was open beside it (the journal). Then the latest
    snapshot is overwritten at the moments that `save_latest_on` names, always in order; an immutable one is added when
    `snapshot_trigger` says so at a completion boundary, or by `save_snapshot`. Each names the one it descends from, so that
    a rewound session is a tree (`antiphon.session.read_tree`).

    In a storage these are blobs, and whoever saves last wins. In a store they are rows (`antiphon.session.rows`): the latest
    snapshot is the agent's newest row, which grows; a checkpoint seals it. Each process, and each rewind, begins a row of
    its own, so that nothing which was saved is overwritten by another. A save onto a session that somebody else has moved
    on fails with `SessionConflictError`; `restore_snapshot` takes over what is there, or goes on beside it.
    Where a storage raises `StorageError`, a store raises `SessionStoreError`.

    The completion boundary is the end of an `Agent`'s invocation; of a `BidiAgent`, the end of the call and the moment
    before its connection restarts. Saves run after all other hooks, so that what those change is saved.

    One manager may keep several agents of one session, of either kind, by their `agent_id`s. It holds none of them alive.

    Args:
        session_id: The session. Without separators, not blank, not made of dots only.
        storage: Where to; by default the agent's own storage, else local files in `./.antiphon/`. Below `session/`, unless
            it is a namespaced view.
        store: Where to instead: any session store. Listing, deleting and redacting need one that is a
            `SessionCatalogue` and a `SessionRedactor`; all of ours are.
        save_latest_on: `"message"`: each message that is added or updated, the boundary, and the journal, so that nothing
            that happened is forgotten by a crash. `"invocation"`: the boundary. `"trigger"`: when the trigger fires. Given,
            it holds for both kinds; left out, an `Agent` saves per invocation and a `BidiAgent` per message.
        snapshot_trigger: Called at the boundary. One that raises is logged, and latest is saved. One for a kind of agents
            makes the manager one for that kind.
        on_save_error: `"raise"`: a save that fails ends the invocation with `SessionSaveError`, which carries the result.
            `"retry"`: it is tried again beside the conversation, with the newest state, `SessionSaveFailedEvent` is told,
            and the end of a call tries for at most 5 s more before it raises. Left out: an `Agent` raises, a `BidiAgent`
            retries.
        clock: For dates and pauses.

    Raises:
        InvalidIdError: If `session_id` cannot name a session.
        InvalidInputError: If a strategy is not one of those above, or both a storage and a store are given.
        InvalidTypeError: If `storage` is no storage, `store` no store, or `snapshot_trigger` cannot be called.
    """

    def __init__(
        self,
        session_id: str = "default-session",
        *,
        storage: Storage | None = None,
        store: SessionStore | None = None,
        save_latest_on: SaveLatestStrategy | None = None,
        snapshot_trigger: SnapshotTrigger[AgentT_contra] | None = None,
        on_save_error: OnSaveError | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.session_id = check_id("session_id", session_id)
        _check_choice("save_latest_on", save_latest_on, get_args(SaveLatestStrategy))
        _check_choice("on_save_error", on_save_error, get_args(OnSaveError))
        if storage is not None and not isinstance(storage, Storage):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"storage={storage!r} is not a Storage: it needs write, read, delete and list")
        if store is not None and not isinstance(store, SessionStore):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"store={store!r} is not a SessionStore: use one of ours, or antiphon.store.open_store"
            )
        if storage is not None and store is not None:
            raise InvalidInputError("storage= and store= are two places for one session: give one of them")
        if snapshot_trigger is not None and not callable(snapshot_trigger):
            raise InvalidTypeError(f"snapshot_trigger={snapshot_trigger!r} cannot be called")
        self._storage, self._store = storage, store
        self._default_storage: Storage | None = None
        self._save_latest_on: SaveLatestStrategy | None = save_latest_on
        self._trigger = snapshot_trigger
        self._on_save_error: OnSaveError | None = on_save_error
        self._saver = Saver(session_id, clock)
        self._keepers: WeakKeyDictionary[Any, Keeper] = WeakKeyDictionary()

    @property
    def health(self) -> SaveHealth:
        """How the saves are doing."""
        return replace(self._saver.health, behind=any(keeper.failures for keeper in list(self._keepers.values())))

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Restore on the agent's initialised event, and save at the moments of the policy."""
        registry.add_callback(AgentInitializedEvent, self._on_initialized, order=HookOrder.SDK_FIRST)
        registry.add_callback(MessageAddedEvent, self._on_message, order=HookOrder.SDK_LAST)
        registry.add_callback(MessageUpdatedEvent, self._on_message, order=HookOrder.SDK_LAST)
        if self._save_latest_on in {None, "message"}:
            registry.add_callback(JournalChangedEvent, self._on_journal, order=HookOrder.SDK_LAST)
        registry.add_callback(AfterInvocationEvent, self._on_invocation, order=HookOrder.SDK_LAST)
        registry.add_callback(BidiBeforeConnectionRestartEvent, self._on_restart, order=HookOrder.SDK_LAST)
        registry.add_callback(BidiAgentStopEvent, self._on_stop, order=HookOrder.SDK_LAST)

    def _on_initialized(self, event: AgentInitializedEvent[AgentT_contra]) -> None:
        self.initialize(event.agent)

    async def _on_message(self, event: MessageAddedEvent[AgentT_contra] | MessageUpdatedEvent[AgentT_contra]) -> None:
        agent = event.agent
        self._keeper(agent).seen.note(agent.messages)
        if self._policy(agent) == "message":
            await self._save(agent, Save(latest=True))

    async def _on_journal(self, event: JournalChangedEvent[AgentT_contra]) -> None:
        if self._policy(event.agent) == "message":
            await self._save(event.agent, Save(journal=True))
            if self._keeper(event.agent).failures:
                event.unsaved = self._saver.health.last_error or StorageError("the journal is not written yet")

    async def _on_invocation(self, event: AfterInvocationEvent[AgentT_contra]) -> None:
        await self._save_at_boundary(event.agent, event.result)

    async def _on_restart(self, event: BidiBeforeConnectionRestartEvent[AgentT_contra]) -> None:
        await self._save_at_boundary(event.agent)

    async def _on_stop(self, event: BidiAgentStopEvent[AgentT_contra]) -> None:
        agent = event.agent
        if self._on_error(agent) == "raise":
            await self._save_at_boundary(agent)
            return
        keeper = self._keeper(agent)
        await keeper.retrier.stop()
        save = await self._decide(agent)
        if keeper.failures:
            save = replace(save, latest=True)
        if save:
            await self._saver.save_within_bound(agent, keeper, save)

    def _policy(self, agent: AgentT_contra) -> SaveLatestStrategy:
        return self._save_latest_on or ("message" if agent.kind.live else "invocation")

    def _on_error(self, agent: AgentT_contra) -> OnSaveError:
        return self._on_save_error or ("retry" if agent.kind.live else "raise")

    def _latest(self, agent: AgentT_contra) -> Save:
        return Save(latest=True, journal=self._policy(agent) == "message")

    def _keeper(self, agent: AgentT_contra) -> Keeper:
        keeper = self._keepers.get(agent)
        if keeper is None:
            keeper = Keeper(self._target(agent, agent.agent_id), self._saver.clock)
            self._keepers[agent] = keeper
        return keeper

    def _target(self, agent: AgentT_contra | None, agent_id: str) -> Target:
        if self._store is not None:
            return RowTarget(self._store, self.session_id, agent_id, self._saver.clock)
        return BlobTarget(resolve_namespace(self._storage_of(agent), NAMESPACE), self.session_id, agent_id)

    def _storage_of(self, agent: AgentT_contra | None) -> Storage:
        found = self._storage or (agent.storage if agent is not None else None) or self._default_storage
        if found is None:
            found = self._default_storage = LocalFileStorage()
        return found

    async def _decide(self, agent: AgentT_contra) -> Save:
        """What to save at a completion boundary."""
        policy = self._policy(agent)
        by_policy = Save(latest=policy != "trigger", journal=policy == "message")
        if self._trigger is None:
            return by_policy
        try:
            decision = self._trigger(agent_data=agent)
            fired = bool(await decision if inspect.isawaitable(decision) else decision)
        except Exception:  # noqa: BLE001 - a trigger is the user's code
            _log.exception("session %r: the snapshot trigger raised; latest is saved", self.session_id)
            return replace(by_policy, latest=True)
        return replace(by_policy, latest=by_policy.latest or fired, checkpoint=fired)

    async def _save_at_boundary(self, agent: AgentT_contra, result: object = None) -> None:
        if save := await self._decide(agent):
            await self._save(agent, save, result)

    async def _save(self, agent: AgentT_contra, save: Save, result: object = None) -> None:
        keeper = self._keeper(agent)
        self._warn_of_namesake(agent, keeper)
        if self._on_error(agent) == "retry":
            await self._saver.save_or_retry(agent, keeper, save, self._latest(agent))
        else:
            await self._saver.save_or_raise(agent, keeper, save, result)

    def _warn_of_namesake(self, agent: AgentT_contra, keeper: Keeper) -> None:
        """Say once that `agent` overwrites what an agent of the same id, made after it, goes on from."""
        others = [other for other in list(self._keepers) if other.agent_id == agent.agent_id]
        if keeper.warned or not others or others[-1] is agent:
            return
        keeper.warned = True
        _log.warning(
            "session %r: two agents with agent_id=%r are in use. In a storage they overwrite each other's saves, and the "
            "session goes on with what is saved last; in a store the saves of one of them are refused. Give each an "
            "agent_id of its own, or use one of them only",
            self.session_id,
            agent.agent_id,
        )

    def initialize(self, agent: AgentT_contra, **kwargs: Any) -> None:
        """Restore the agent from its latest snapshot and the journal beside it, if the session knows it.

        A damaged journal is logged, told by `health`, and left aside: the history is whole without it.

        Raises:
            CorruptSnapshotError: If the latest snapshot is damaged.
            SnapshotException: If it cannot be loaded.
            StorageError: If the storage cannot be read.
            SessionStoreError: If the store cannot be read, or is damaged.
        """
        keeper = self._keeper(agent)
        found = keeper.target.call(keeper.target.find_latest)
        had_messages = bool(agent.messages)
        keeper.seen.note(agent.messages)
        if found is None:
            return
        self._restore(agent, keeper, found, checkpoint=False)
        if had_messages and found.snapshot is not None:
            _log.warning(
                "session_id=<%s>, agent_id=<%s> | agent had existing messages that were overwritten by session restore",
                self.session_id,
                agent.agent_id,
            )

    def _restore(self, agent: AgentT_contra, keeper: Keeper, found: Found, *, checkpoint: bool) -> None:
        keeper.restore(agent, found, checkpoint=checkpoint)
        if found.damage is not None:
            self._saver.health = self._saver.health.with_error(found.damage)

    def sync_agent(self, agent: AgentT_contra, **kwargs: Any) -> None:
        """Overwrite the latest snapshot with the agent as it is now. `save_snapshot` does so without blocking.

        Raises:
            SnapshotException: If a value in the agent cannot be stored.
            StorageError: If it could not be written.
        """
        keeper = self._keeper(agent)
        try:
            keeper.save_blocking(agent, journal=self._policy(agent) == "message")
        except Exception as error:
            self._saver.failed(keeper, error)
            raise
        self._saver.succeeded()

    def append_message(self, message: Message, agent: AgentT_contra, **kwargs: Any) -> None:
        """Does nothing: snapshots hold the whole agent, and the policy says when they are taken."""

    def redact_latest_message(self, redact_message: Message, agent: AgentT_contra, **kwargs: Any) -> None:
        """Bring a redaction to the latest snapshot, the journal and every checkpoint that holds the message, at once.

        Under every policy. When this returns, the message as it was before is in no blob of the agent: not where it stood
        in the history, nor anywhere else where the very same message stands, nor in an earlier version with the same
        `tracking_id`. A checkpoint that is damaged cannot be searched; it is named in the log.

        Args:
            redact_message: The new message. The agent has already put it in place of its latest one.
            agent: The agent.
            **kwargs: Room for what later versions pass.

        Raises:
            StorageError: If it could not be done everywhere. Call it again.
        """
        keeper = self._keeper(agent)
        try:
            keeper.redact_blocking(agent)
        except Exception as error:
            self._saver.failed(keeper, error)
            raise
        self._saver.succeeded()

    async def sync_agent_async(self, agent: AgentT_contra, **kwargs: Any) -> None:
        """Like `sync_agent`, without holding up the event loop."""
        await self._saver.attempt(agent, self._keeper(agent), self._latest(agent))

    async def redact_latest_message_async(self, redact_message: Message, agent: AgentT_contra, **kwargs: Any) -> None:
        """Like `redact_latest_message`, without holding up the event loop."""
        keeper = self._keeper(agent)
        try:
            await keeper.redact(agent)
        except Exception as error:
            self._saver.failed(keeper, error)
            raise
        self._saver.succeeded()

    async def list_snapshot_ids(
        self, agent: AgentT_contra, *, limit: int | None = None, start_after: str | None = None
    ) -> list[str]:
        """The ids of the agent's immutable snapshots, oldest first. No snapshot is read.

        Args:
            agent: Whose.
            limit: At most so many.
            start_after: Only those after this one: the last id of the page before.

        Raises:
            InvalidTypeError: If `limit` is not an integer.
            InvalidInputError: If `limit` is less than 1, or `start_after` is no snapshot id.
            StorageError: If the storage cannot be read.
        """
        if limit is not None and type(limit) is not int:
            raise InvalidTypeError(f"limit={limit!r} is {type(limit).__name__}, not an integer")
        if limit is not None and limit < 1:
            raise InvalidInputError(f"limit={limit!r} is less than 1: leave it out for all")
        target = self._keeper(agent).target
        after = "" if start_after is None else target.check_id(start_after)
        ids = await target.run(target.ids)
        if after in ids:  # where clocks disagree, a store's rows are not in the order of their ids
            return ids[ids.index(after) + 1 :][:limit]
        return [snapshot_id for snapshot_id in ids if snapshot_id > after][:limit]

    async def restore_snapshot(self, agent: AgentT_contra, *, snapshot_id: str | None = None) -> bool:
        """Restore the agent from a stored snapshot. Nothing is written; what is saved next descends from it.

        Args:
            agent: The agent to restore into.
            snapshot_id: An immutable snapshot: what was open then, or is open now, is let go of. Left out: the latest
                one, with its journal, as when an agent is constructed.

        Returns:
            Whether there is such a snapshot.

        Raises:
            InvalidInputError: If `snapshot_id` is no snapshot id.
            AgentStateError: While a live call or an invocation is under way.
            SnapshotException: If it is damaged or cannot be loaded; nothing was changed then.
            StorageError: If the storage cannot be read.
        """
        keeper = self._keeper(agent)
        target = keeper.target
        if snapshot_id is not None:
            target.check_id(snapshot_id)
        await keeper.retrier.stop()  # it would save a state that is to be given up
        async with keeper.turn():
            if snapshot_id is None:
                found = await target.run(target.find_latest)
            else:
                found = await target.run(target.find, snapshot_id)
            if found is None or found.snapshot is None:
                return False
            self._restore(agent, keeper, found, checkpoint=snapshot_id is not None)
            return True

    async def save_snapshot(self, agent: AgentT_contra, *, is_latest: bool) -> str | None:
        """Save the agent as it is now, whatever the policy.

        Args:
            agent: The agent.
            is_latest: Overwrite the latest snapshot; else append an immutable one.

        Returns:
            The id of the immutable snapshot; None for latest.

        Raises:
            SnapshotException: If a value in the agent cannot be stored.
            StorageError: If it could not be written.
        """
        save = self._latest(agent) if is_latest else Save(checkpoint=True)
        return await self._saver.attempt(agent, self._keeper(agent), save)

    async def delete_session(self) -> None:
        """Delete everything of this session: snapshots, checkpoints and journals of all of its agents, and nothing else.

        Agents that are there stay as they are; what is saved next begins the session anew.

        Raises:
            StorageError: If the storage failed; some blobs may be deleted already.
        """
        keepers = list(self._keepers.values())
        targets = [keeper.target for keeper in keepers] or [self._target(None, "default")]
        for keeper in keepers:
            await keeper.retrier.stop()
        for target in {id(target.place): target for target in targets}.values():
            await target.run(target.delete_session)
        for keeper in keepers:
            keeper.begin_anew()


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise InvalidInputError(f"{name} must be one of {choices}, got {value!r}")
