"""Makes runs: what a request may say, what it goes on from, and the agent that does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from antiphon.agent.live import BidiAgent
from antiphon.agent.turns import Agent
from antiphon.conversation.journal import Journal
from antiphon.errors import InvalidInputError, InvalidTypeError, NotSupportedError, StateManagementError
from antiphon.ids import check_id, new_uuid7
from antiphon.runner.client_state import taken_back
from antiphon.runner.feed import Feed
from antiphon.runner.ground import Ground, Grounds
from antiphon.runner.live import LiveTurns
from antiphon.runner.plan import Plan
from antiphon.runner.rows import RunRows
from antiphon.runner.run import Run, RunSetup
from antiphon.session.rows import Position, RowWriter
from antiphon.store.base import IdempotencyReader, SessionSnapshot

MakeAgent = Callable[[], Agent | BidiAgent]
"""Makes a fresh agent for one run: its model, tools, prompt and hooks. No session manager: the runner saves it."""

_DEFAULT_AGENT_ID = "default"


@dataclass(frozen=True, slots=True)
class Request:
    """What a run is to go on from.

    Attributes:
        session_id: The session's newest row, or a new session of this id.
        snapshot_id: This row. With both, it must be the session's.
        state: What the client keeps; without a store only.
        idempotency_key: The same key gets the same outcome.
    """

    session_id: str | None = None
    snapshot_id: str | None = None
    state: Mapping[str, Any] | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMaker:
    """Makes the runs of a runner.

    Attributes:
        make_agent: Makes the agents.
        name: Their id in the session.
        grounds: Finds rows; None where the client keeps the sessions.
        setup: What all runs share.
        initial_state: The state of a new session.
        signing_key: Signs what clients keep.
    """

    make_agent: MakeAgent
    name: str
    grounds: Grounds | None
    setup: RunSetup
    initial_state: Callable[[], dict[str, Any]] | None = None
    signing_key: bytes | None = None

    def check(self, request: Request) -> None:
        """Refuse a request that contradicts itself, or who keeps the sessions.

        Raises:
            InvalidInputError: If a state and an id are given, or an id is none.
            StateManagementError: If the client keeps the sessions and an id is given, or the server and a state.
            NotSupportedError: If the store cannot find idempotency keys.
        """
        if request.state is not None and (request.session_id is not None or request.snapshot_id is not None):
            raise InvalidInputError("give state, or session_id and snapshot_id: a state is a session of its own")
        for what in ("session_id", "snapshot_id"):
            value = getattr(request, what)
            if value is not None:
                check_id(what, value)
                if self.grounds is None:
                    raise StateManagementError(
                        f"Cannot use {what!r} with agent {self.name!r}: it has no store, so the client keeps the session; "
                        "send back 'state'"
                    )
        if self.grounds is None:
            if request.idempotency_key is not None:
                raise StateManagementError("an idempotency_key needs a store, which remembers it")
            return
        if request.state is not None:
            raise StateManagementError(
                f"Cannot send 'state' to agent {self.name!r}: it keeps its sessions in a store; "
                "send 'session_id' or 'snapshot_id'"
            )
        if request.idempotency_key is not None and not isinstance(self.grounds.store, IdempotencyReader):
            raise NotSupportedError(f"{type(self.grounds.store).__name__} cannot find rows by idempotency key")

    async def ground(self, request: Request) -> Ground:
        """What a checked request goes on from.

        Raises:
            SnapshotNotFoundError: If there is no such row.
            NotResumableError: If no turn can go on from the row.
            StateSignatureError: If a state is not one that was given out.
            InvalidInputError: If the row is another session's, or the state is malformed.
        """
        if self.grounds is not None:
            return await self.grounds.find(request.session_id, request.snapshot_id)
        if request.state is None:
            return Ground(new_uuid7())
        session_id, snapshot, usage = taken_back(request.state, self.signing_key)
        return Ground(session_id, snapshot, usage=usage)

    def run(
        self,
        ground: Ground,
        *,
        feed: Feed | None = None,
        idempotency_key: str | None = None,
        plan: Plan | None = None,
        rows: RunRows | None = None,
    ) -> Run:
        """A run on a ground, with an agent of its own.

        Args:
            ground: What it goes on from.
            feed: Who listens.
            idempotency_key: Marks its first row.
            plan: What it does, when it is detached.
            rows: Writes its rows, where that is not to be a new writer.

        Raises:
            SnapshotException: If the state cannot be loaded.
            StateValidationError: If the session's state does not fit its type.
            InvalidInputError: If `make_agent` made an agent that cannot be run.
        """
        agent = self.agent()
        if not isinstance(agent, Agent):
            raise InvalidTypeError(f"make_agent made a {type(agent).__name__}, which talks live: it takes no turns")
        if rows is None and self.grounds is not None:
            rows = self.rows(ground, self.grounds, idempotency_key, detached=plan is not None)
        return Run(agent, ground, self.setup, rows=rows, feed=feed, plan=plan, initial_state=self.initial_state)

    def talk(self, ground: Ground, grounds: Grounds) -> tuple[BidiAgent, LiveTurns]:
        """A live agent on a ground, and what keeps its turns.

        Raises:
            InvalidTypeError: If `make_agent` made an agent that takes typed turns.
            InvalidInputError: If a typed turn waits for a person.
            SnapshotException: If the state cannot be loaded.
            StateValidationError: If the session's state does not fit its type.
        """
        agent = self.agent()
        if not isinstance(agent, BidiAgent):
            raise InvalidTypeError(f"make_agent made a {type(agent).__name__}, which takes turns: it cannot talk live")
        rows, store = self.rows(ground, grounds), grounds.store
        turns = LiveTurns(agent, ground, self.setup, rows=rows, store=store, initial_state=self.initial_state)
        return agent, turns

    def rows(
        self, ground: Ground, grounds: Grounds, idempotency_key: str | None = None, *, detached: bool = False
    ) -> RunRows:
        """The rows of a run on a ground."""
        writer = RowWriter(grounds.store, ground.session_id, agent_id=self.name, clock=self.setup.clock)
        if ground.seen is not None:
            if ground.row is None:
                writer.position = Position(ground.seen.tip, ground.seen.tip_at)
            else:
                writer.restored(ground.seen)
        rows = RunRows(
            writer,
            clock=self.setup.clock,
            branches=ground.branches,
            fork=grounds.fork,
            idempotency_key=idempotency_key,
            detached=detached,
        )
        rows.forked = ground.forked
        return rows

    def adopting(self, row: SessionSnapshot, tip: SessionSnapshot) -> tuple[Ground, RunRows, RowWriter]:
        """A row in flight, to be gone on with: by a writer of the epoch after its own.

        Args:
            row: The row.
            tip: The newest one of the session.
        """
        assert self.grounds is not None  # noqa: S101 - rows come from a store
        writer = RowWriter(
            self.grounds.store, row.session_id, agent_id=self.name, clock=self.setup.clock, epoch=row.epoch + 1
        )
        writer.position = Position(tip.snapshot_id, tip.created_at, row.parent_id, row.snapshot_id)
        ground = Ground(
            row.session_id,
            row.loaded(),
            None if row.journal is None else Journal.from_dict(row.journal),
            row.usage or {},
            row,
        )
        rows = RunRows(writer, clock=self.setup.clock, idempotency_key=row.idempotency_key, detached=True)
        return ground, rows, writer

    def agent(self) -> Agent | BidiAgent:
        """A fresh agent under the runner's name.

        Raises:
            InvalidTypeError: If `make_agent` made something else.
            InvalidInputError: If the agent has a session manager, or another name of its own.
        """
        agent = self.make_agent()
        if not isinstance(agent, (Agent, BidiAgent)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"make_agent made {agent!r}, which is no agent")
        if agent.session_manager is not None:
            raise InvalidInputError(
                "the agent has a session manager, but the runner saves it: leave session_manager out"
            )
        if agent.turn is not None:
            raise InvalidInputError("make_agent gave an agent that was run before: make a fresh one each time")
        if agent.agent_id not in {_DEFAULT_AGENT_ID, self.name}:
            raise InvalidInputError(
                f"the agent's id is {agent.agent_id!r} and the runner's name {self.name!r}: give one name only"
            )
        agent.agent_id = self.name
        return agent
