"""The runner: sessions that a server owns, one turn at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, Literal, cast, get_args

from antiphon.agent.live import BidiAgent
from antiphon.agent.turns import Agent
from antiphon.bounded import within
from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.errors import (
    IdempotencyKeyError,
    InvalidInputError,
    InvalidTypeError,
    NotSupportedError,
    StateManagementError,
    TaskLostError,
)
from antiphon.ids import check_id
from antiphon.jsonable import copy_json
from antiphon.runner.background import Background
from antiphon.runner.client_state import given_out
from antiphon.runner.feed import Feed
from antiphon.runner.foreground import listened_to, one_by_one, waited_for
from antiphon.runner.ground import DETACHED, Grounds
from antiphon.runner.inputs import ResumeLike, RunInput, read_inputs
from antiphon.runner.making import MakeAgent, Request, RunMaker
from antiphon.runner.outputs import RunChunk, RunOutput
from antiphon.runner.presenting import Presenter, StateTransform
from antiphon.runner.queue import SessionQueue
from antiphon.runner.reading import Reader
from antiphon.runner.replaying import output_of_row
from antiphon.runner.run import Run, RunSetup
from antiphon.runner.state_type import StateType, state_type_of
from antiphon.runner.task import Task
from antiphon.runner.waiting import settled
from antiphon.store.base import IdempotencyReader, SessionLease, SessionSnapshot, SessionStore, SnapshotStatus
from antiphon.store.lineage import SnapshotTree

Durability = Literal["strict", "best_effort"]
OnConflict = Literal["reject", "queue", "fork"]

_SHORTEST_KEY = 16


class Runner:
    """Runs turns of agents, and keeps their sessions: each turn is a row, which any later run can go on from.

    With a store the server keeps the sessions, and a run names the `session_id` (its newest row) or a `snapshot_id` (any
    row: beside what came after it, a branch begins). Without one the client keeps them: it gets `output.state` and sends it
    back.

    What a request says wrongly is raised before anything happens; what goes wrong in a turn is an output whose
    `finish_reason` is `failed`. A failed or aborted turn that has committed something (an answer, the results of tools) is
    saved as such, and can be gone on from; one that has not leaves no row.

    Args:
        make_agent: Makes a fresh agent for each run, so that one definition serves many sessions at once.
        store: Keeps the sessions; None: the client does.
        name: The agent's id within its sessions.
        state_type: The type of the session's state: a pydantic model, a dataclass or a TypedDict, or a `StateType` with a
            version and migrations. It is checked when it is loaded and when it is saved.
        initial_state: The state of a new session: a value of that type (without a type: a dict), or a function that makes
            one.
        state_transform: Shapes what leaves the server (`StateTransform`). When it fails, nothing leaves.
        durability: `"strict"`: a turn whose row cannot be written has failed. `"best_effort"`: the output says so in
            `unsaved`, and the run goes on.
        on_conflict: What a run does that meets another one on its session. `"reject"`: the second to save is refused, and
            nothing of it is written. `"queue"`: it waits for its turn. `"fork"`: it becomes a branch, and the output says so.
        heartbeat: Seconds between a worker's signs of life.
        expire_after: Seconds without one after which it is taken for dead. (A store may say so earlier: see its
            `expires_after`.)
        signing_key: Signs the state that clients keep, so that one that was changed is refused; at least 16 bytes. A state
            that was given out stays valid, also when later ones were.
        queue_timeout: Seconds that a run waits for its turn.
        queue_limit: How many runs of this process may wait for one session.
        clock: Dates rows and paces waits.

    Raises:
        InvalidInputError: If an argument makes no sense.
        InvalidTypeError: If one has a wrong type.
        NotSupportedError: If the store has no queues, and `on_conflict="queue"`.
    """

    def __init__(
        self,
        make_agent: MakeAgent,
        *,
        store: SessionStore | None = None,
        name: str = "default",
        state_type: type[Any] | StateType[Any] | None = None,
        initial_state: Any = None,
        state_transform: StateTransform | None = None,
        durability: Durability = "strict",
        on_conflict: OnConflict = "reject",
        heartbeat: float = 30.0,
        expire_after: float = 60.0,
        signing_key: bytes | str | None = None,
        queue_timeout: float = 60.0,
        queue_limit: int = 100,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if isinstance(make_agent, Agent | BidiAgent):  # which can be called, too
            raise InvalidTypeError(
                f"make_agent is a {type(make_agent).__name__}: give a function that makes a fresh one for each run, such as "
                "lambda: Agent(...)"
            )
        if not callable(make_agent):
            raise InvalidTypeError(f"make_agent={make_agent!r} cannot be called: give a function that makes an agent")
        if store is not None and not isinstance(store, SessionStore):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"store={store!r} is not a SessionStore: use one of ours, or antiphon.store.open_store"
            )
        _check_choice("durability", durability, get_args(Durability))
        _check_choice("on_conflict", on_conflict, get_args(OnConflict))
        for what, seconds in (
            ("heartbeat", heartbeat),
            ("expire_after", expire_after),
            ("queue_timeout", queue_timeout),
        ):
            if not seconds > 0:
                raise InvalidInputError(f"{what}={seconds!r} is not a positive number of seconds")
        if expire_after <= heartbeat:
            raise InvalidInputError(f"expire_after={expire_after!r} is not more than heartbeat={heartbeat!r}")
        if queue_limit < 1:
            raise InvalidInputError(f"queue_limit={queue_limit!r} is less than 1")
        self.name = check_id("name", name)
        self.state_type = state_type_of(state_type)
        self._clock, self._transform = clock, state_transform
        grounds = None if store is None else Grounds(store, name, clock, expire_after, fork=on_conflict == "fork")
        self._maker = RunMaker(
            make_agent=make_agent,
            name=name,
            grounds=grounds,
            setup=RunSetup(clock=clock, strict=durability == "strict", heartbeat=heartbeat, state_type=self.state_type),
            initial_state=_state_maker(initial_state, self.state_type),
            signing_key=_key(signing_key),
        )
        self._reader = None if store is None else Reader(store, name, clock, expire_after, state_transform)
        self._background = None if grounds is None else Background(self._maker, grounds, clock)
        self._queue: SessionQueue | None = None
        if on_conflict == "queue" and store is not None:
            if not isinstance(store, SessionLease):
                raise NotSupportedError(f'{type(store).__name__} has no queues, which on_conflict="queue" needs')
            self._queue = SessionQueue(store, clock, queue_timeout, queue_limit)

    @property
    def store(self) -> SessionStore | None:
        """Who keeps the sessions; None: the client."""
        return None if self._reader is None else self._reader.store

    async def run(
        self,
        input: RunInput = None,
        *,
        session_id: str | None = None,
        snapshot_id: str | None = None,
        state: Mapping[str, Any] | None = None,
        resume: ResumeLike | None = None,
        idempotency_key: str | None = None,
    ) -> RunOutput:
        """Take a turn, or several.

        Args:
            input: What the user says; several `TurnInput`s, or an asynchronous iterator of inputs, are as many turns, each
                with a row.
            session_id: Go on from the session's newest row; a new session, where there is none of this id.
            snapshot_id: Go on from this row. With both, it must be the session's.
            state: Without a store: what the client was given last.
            resume: Answers to a turn that waits for a person (`Resume`), with the first input.
            idempotency_key: A repeated request with the same key gets the outcome of the first, or waits for it; the key
                alone says that it is the same. For one turn, with a store.

        Returns:
            What it came to. Failures of a turn are in it, and not raised.

        Raises:
            InvalidInputError: If the request makes no sense, or the row is another session's.
            StateManagementError: If it takes the server to keep the session, and the client does, or the other way.
            SnapshotNotFoundError: If there is no such row.
            NotResumableError: If no turn can go on from the row; the message says what to do.
            SessionConflictError: If another run moved the session on meanwhile; nothing was written.
            QueueFullError: If too many runs wait for the session.
            QueueTimeoutError: If its turn did not come in time.
            IdempotencyKeyError: If the key was used for another session, or by another agent.
            TaskLostError: If the key is that of a run in the background whose worker has gone silent.
            StateValidationError: If the stored state does not fit its type.
            StateSignatureError: If `state` is not one that was given out.
        """
        request = Request(session_id, snapshot_id, state, idempotency_key)
        inputs = self._inputs(input, resume, request)
        self._maker.check(request)
        async with self._turn_of(request) as turned:
            run = await self._begun(turned, None)
            output = run if isinstance(run, RunOutput) else await waited_for(run, inputs, self._clock)
        return await self._presented(output, Presenter(self._transform, output.session_id))

    async def stream(
        self,
        input: RunInput = None,
        *,
        session_id: str | None = None,
        snapshot_id: str | None = None,
        state: Mapping[str, Any] | None = None,
        resume: ResumeLike | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncGenerator[RunChunk | RunOutput, None]:
        """Take a turn, or several, and tell what happens. Arguments and errors are those of `run`.

        Whoever stops iterating, and closes the generator, ends the run; what it has done is saved.

        Yields:
            `ModelChunk`, `CustomPatch` and `ArtifactChunk`s as they come, one `TurnEnd` for each turn, and last the
            `RunOutput`. The outcome of an earlier request with the same key comes alone.
        """
        request = Request(session_id, snapshot_id, state, idempotency_key)
        inputs = self._inputs(input, resume, request)
        self._maker.check(request)
        async with self._turn_of(request) as turned:
            feed = Feed()
            run = await self._begun(turned, feed)
            presenter = Presenter(self._transform, run.session_id)
            if isinstance(run, RunOutput):
                yield await self._presented(run, presenter)
                return
            async with aclosing(listened_to(run, inputs, feed, presenter, self._clock)) as told:
                async for chunk in told:
                    yield await self._presented(chunk, presenter) if isinstance(chunk, RunOutput) else chunk

    @asynccontextmanager
    async def connect(
        self, *, session_id: str | None = None, snapshot_id: str | None = None
    ) -> AsyncGenerator[BidiAgent, None]:
        """Talk live: gives a started agent, whose turns become rows of the same tree as typed turns.

        A turn is what the user said, and what was answered until the user spoke again. Its row is rewritten as the talk
        goes on, and settled when the next turn begins or the talk ends. Others see that it is worked on, and may `abort` it,
        which ends the talk. A talk whose process dies is gone on from like any other run: what was said and heard is there.

        Args:
            session_id: As for `run`.
            snapshot_id: As for `run`.

        Raises:
            StateManagementError: If there is no store.
            InvalidTypeError: If `make_agent` makes agents that take typed turns.
            InvalidInputError: If a typed turn waits for a person.
            SessionConflictError: If another run moved the session on meanwhile.
            Exception: What `run` raises before a turn begins, what the agent raises when it starts or stops, and what the
                store raises at the end.
        """
        self._in_background()
        grounds = self._maker.grounds
        assert grounds is not None  # noqa: S101 - there is a store
        request = Request(session_id, snapshot_id)
        self._maker.check(request)
        async with self._turn_of(request) as turned:
            agent, turns = self._maker.talk(await self._maker.ground(turned), grounds)
            await agent.start()
            turns.begin()
            failure: BaseException | None = None
            try:
                yield agent
            except Exception as error:
                failure = error
                raise
            finally:
                try:
                    await agent.stop()
                except Exception as error:
                    failure = failure or error
                    raise
                finally:
                    await turns.end(failure)

    async def detach(
        self,
        input: RunInput = None,
        *,
        session_id: str | None = None,
        snapshot_id: str | None = None,
        resume: ResumeLike | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Take a turn, or several, in the background: this returns once the run's row is written.

        The run has one row, which is rewritten with its state after each turn, and settled when it has ended. It goes on
        in this process for as long as this event loop runs. When that ends, or the process dies, the row expires, and any
        process may `adopt` it: what is lost is the turn under way, at most.

        Args:
            input: As for `run`; no iterator.
            session_id: As for `run`.
            snapshot_id: As for `run`.
            resume: As for `run`.
            idempotency_key: A repeated request gets the task of the first.

        Raises:
            InvalidInputError: If the request makes no sense, or the row is another session's.
            StateManagementError: If there is no store.
            Exception: What else `run` raises before a turn begins.
        """
        background = self._in_background()
        request = Request(session_id, snapshot_id, None, idempotency_key)
        if isinstance(input, AsyncIterator):
            raise InvalidInputError("an iterator of inputs ends with its process: give a list of TurnInputs")
        if isinstance(input, list | tuple) and not input and resume is None:
            raise InvalidInputError("the list of inputs is empty: give at least one TurnInput")
        inputs = read_inputs(input, resume)
        self._maker.check(request)
        async with AsyncExitStack() as stack:
            turned = await stack.enter_async_context(self._turn_of(request))
            if (earlier := await self._task_of(idempotency_key, request)) is not None:
                return earlier
            ground = await self._maker.ground(turned)
            try:
                return Task(self, await background.detach(ground, inputs, idempotency_key, stack))
            except IdempotencyKeyError:
                # The other request was a moment faster.
                if (earlier := await self._task_of(idempotency_key, request)) is None:
                    raise
                return earlier

    def task(self, snapshot_id: str) -> Task:
        """A run in the background, by the id of its row, whichever process began it. Nothing is read.

        Raises:
            InvalidIdError: If the id is none.
        """
        return Task(self, check_id("snapshot_id", snapshot_id))

    async def adopt(self, snapshot_id: str) -> Task:
        """Go on with a detached run whose worker has gone silent. Should that come back, it can write no more.

        Turns that were saved are not repeated. Of the one under way, what was saved is gone on from: a tool that was
        running is told to the model as interrupted, unless it is `repeatable`. A run that somebody wanted to be aborted is
        ended.

        Raises:
            StateManagementError: If there is no store.
            SnapshotNotFoundError: If there is no such row.
            InvalidInputError: If the row is another agent's.
            NotResumableError: If the worker is alive, the run has ended, or it was not detached.
            CorruptStoreError: If the row does not tell what is left to do.
        """
        background = self._in_background()
        row = await self.get_snapshot(snapshot_id, metadata_only=True)
        async with AsyncExitStack() as stack:
            if self._queue is not None:
                await stack.enter_async_context(self._queue.turn(row.session_id))
            await background.adopt(snapshot_id, stack)
        return Task(self, snapshot_id)

    async def abort(self, snapshot_id: str) -> SnapshotStatus | None:
        """Have a run end, whichever process works on it. What it has done is saved, and can be gone on from.

        This waits up to 2 s until the run has ended. The run of a worker that has gone silent is ended here.

        Returns:
            The row's status before: `pending` (`aborting`: somebody was faster; `expired`: its worker had gone silent), or
            that of a run that had ended, to which nothing happens. None when there is no such row.

        Raises:
            StateManagementError: If there is no store.
        """
        return await self._in_background().abort(snapshot_id)

    async def wait(self, snapshot_id: str, *, timeout: float | None = None) -> SessionSnapshot:
        """The row of a run, as it may leave the server, once it has ended.

        A store that is out of reach for less than a minute is asked again.

        Args:
            snapshot_id: The row.
            timeout: Seconds; None: as long as it takes.

        Raises:
            StateManagementError: If there is no store.
            SnapshotNotFoundError: If there is no such row (any more).
            TaskLostError: If its worker has gone silent.
            TimeoutError: If it took longer.
            StateTransformError: If the row could not be shaped.
        """
        waiting = self._in_background().wait(snapshot_id)
        row = await waiting if timeout is None else await within(self._clock, timeout, waiting)
        return await self._reading().shown(row)

    async def aclose(self, *, drain: bool = False) -> None:
        """Stop the workers of this event loop. Their runs do not end: once they have expired, others may adopt them.

        Args:
            drain: Wait until the runs have ended instead.
        """
        if self._background is not None:
            await self._background.close(drain=drain)

    async def get_snapshot(
        self, snapshot_id: str, *, session_id: str | None = None, metadata_only: bool = False
    ) -> SessionSnapshot:
        """A stored row, as it may leave the server, without running anything.

        Args:
            snapshot_id: The row.
            session_id: The session that it must be of.
            metadata_only: Without its state, and so at a cost that does not depend on how long the conversation is.

        Raises:
            StateManagementError: If the client keeps the sessions.
            SnapshotNotFoundError: If there is no such row.
            InvalidInputError: If it is another session's.
            StateTransformError: If it could not be shaped.
        """
        return await self._reading().by_id(snapshot_id, session_id, metadata_only=metadata_only)

    async def get_latest_snapshot(self, session_id: str, *, metadata_only: bool = False) -> SessionSnapshot:
        """The newest row of a session, of any status. Arguments and errors are those of `get_snapshot`."""
        return await self._reading().latest(session_id, metadata_only=metadata_only)

    async def get_output(self, *, session_id: str | None = None, snapshot_id: str | None = None) -> RunOutput:
        """What a run came to, as its row tells: its message, and the questions that wait for a person, in any process.

        Args:
            session_id: The session's newest row.
            snapshot_id: This row. With both, it must be the session's.

        Raises:
            StateManagementError: If the client keeps the sessions.
            InvalidInputError: If neither is given, or the row is another session's, or another agent's.
            SnapshotNotFoundError: If there is no such row.
            NotResumableError: If its run has not ended.
            StateTransformError: If it could not be shaped.
        """
        row = await self._reading().settled(session_id, snapshot_id)
        return await self._presented(output_of_row(row), Presenter(self._transform, row.session_id))

    async def branch(self, snapshot_id: str, new_session_id: str | None = None) -> SessionSnapshot:
        """Begin a session of its own with the state of a row. Deleting one of the two leaves the other as it is.

        (To go on beside what came after a row, within its session, run with its `snapshot_id`.)

        Args:
            snapshot_id: The row; its id is the `parent_id` of the new session's first.
            new_session_id: The new session; left out, it gets an id.

        Raises:
            StateManagementError: If the client keeps the sessions.
            SnapshotNotFoundError: If there is no such row.
            InvalidInputError: If the row is another agent's.
            NotResumableError: If the row is in flight, or holds no state.
            SessionConflictError: If the new session is there already.
        """
        return await self._reading().branch(snapshot_id, new_session_id)

    async def tree(self, session_id: str) -> SnapshotTree:
        """A session as a tree: its rows without their state, and what descends from what.

        Raises:
            StateManagementError: If the client keeps the sessions.
            NotSupportedError: If the store lists no rows.
            StateTransformError: If a row could not be shaped.
        """
        return await self._reading().tree(session_id)

    def _in_background(self) -> Background:
        if self._background is None:
            raise StateManagementError(f"agent {self.name!r} has no store: nothing can go on without its client")
        return self._background

    def _reading(self) -> Reader:
        if self._reader is None:
            raise StateManagementError(f"agent {self.name!r} has no store: the client keeps its sessions")
        return self._reader

    def _inputs(self, given: object, resume: ResumeLike | None, request: Request) -> AsyncIterator[object]:
        if isinstance(given, AsyncIterator):
            if resume is not None or request.idempotency_key is not None:
                raise InvalidInputError("resume and idempotency_key are for inputs that are there, not for an iterator")
            return cast("AsyncIterator[object]", given)
        inputs = read_inputs(given, resume)
        if request.idempotency_key is not None and len(inputs) > 1:
            raise InvalidInputError(f"idempotency_key is for one turn, and there are {len(inputs)} inputs")
        return one_by_one(inputs)

    @asynccontextmanager
    async def _turn_of(self, request: Request) -> AsyncGenerator[Request, None]:
        """One's turn on the session, where runs wait for one another; and what to go on from then."""
        grounds, queue = self._maker.grounds, self._queue
        if grounds is None or queue is None:
            yield request
            return
        session_id = request.session_id
        if request.snapshot_id is not None:
            row = await grounds.store.get_snapshot(request.snapshot_id)
            if row is None or session_id not in {None, row.session_id}:
                yield request  # refused by whoever looks for the ground
                return
            session_id = row.session_id
            tip = await grounds.tip(session_id)
            if tip is not None and tip.snapshot_id == request.snapshot_id:
                # It came to go on from the newest row: after those before it, that is another one.
                request = replace(request, session_id=session_id, snapshot_id=None)
        if session_id is None:
            yield request  # a session of its own
            return
        async with queue.turn(session_id):
            yield request

    async def _begun(self, request: Request, feed: Feed | None) -> Run | RunOutput:
        """A run that is ready to go; or what an earlier one with its key came to."""
        key = request.idempotency_key
        if key is not None and (earlier := await self._replayed(key, request)) is not None:
            return earlier
        run = self._maker.run(await self._maker.ground(request), feed=feed, idempotency_key=key)
        if key is not None:
            try:
                await run.reserve()
            except IdempotencyKeyError:
                # The other request was a moment faster.
                earlier = await self._replayed(key, request)
                if earlier is None:
                    raise
                return earlier
        return run

    async def _earlier(self, key: str | None, request: Request) -> SessionSnapshot | None:
        """The row of an earlier request with this key; None when there was none.

        Raises:
            IdempotencyKeyError: If that was of another session, or another agent.
        """
        store = self.store
        if (
            key is None
            or not isinstance(store, IdempotencyReader)
            or (row := await store.get_snapshot_by_key(key)) is None
        ):
            return None
        session_id = request.session_id
        if session_id is None and request.snapshot_id is not None:
            named = await store.get_snapshot(request.snapshot_id)
            session_id = None if named is None else named.session_id  # pruned since then
        if session_id not in {None, row.session_id} or row.agent_id != self.name:
            raise IdempotencyKeyError(key, row.snapshot_id)
        return row

    async def _replayed(self, key: str, request: Request) -> RunOutput | None:
        """What an earlier request with this key came to, once it has ended; None when there was none.

        Raises:
            IdempotencyKeyError: If that was of another session, or another agent.
            TaskLostError: If it began a run in the background whose worker has gone silent: that may be adopted.
        """
        grounds, row = self._maker.grounds, await self._earlier(key, request)
        if grounds is None or row is None:
            return None
        while not row.terminal:
            row = await settled(grounds.store, row.snapshot_id, clock=self._clock, expire_after=grounds.expire_after)
            if row.terminal:
                break
            if row.finish_reason == DETACHED:
                raise TaskLostError(row.snapshot_id)
            row = await grounds.seal_dead(row)  # in flight still, when its worker has come back meanwhile
        return replace(output_of_row(row), replayed=True)

    async def _task_of(self, key: str | None, request: Request) -> Task | None:
        """The run that an earlier request with this key began."""
        row = await self._earlier(key, request)
        return None if row is None else Task(self, row.snapshot_id)

    async def _presented(self, output: RunOutput, presenter: Presenter) -> RunOutput:
        session_id, key = output.session_id, self._maker.signing_key
        return await presenter.output(output, lambda view: given_out(view, session_id, key))


def _check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidInputError(f"{what}={value!r} is none of {', '.join(choices)}")


def _key(given: bytes | str | None) -> bytes | None:
    if given is None:
        return None
    key = given.encode() if isinstance(given, str) else given
    if not isinstance(key, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"signing_key is {type(given).__name__}, not bytes or a text")
    if len(key) < _SHORTEST_KEY:
        raise InvalidInputError(f"signing_key has {len(key)} bytes: give at least {_SHORTEST_KEY}")
    return key


def _state_maker(given: Any, state_type: StateType[Any] | None) -> Callable[[], dict[str, Any]] | None:
    """Makes the state of a new session, as it is kept."""
    if given is None:
        return None

    def make() -> dict[str, Any]:
        value: Any = given() if callable(given) else given
        if state_type is not None and not isinstance(value, Mapping):
            return state_type.write(value)
        data: dict[str, Any] = copy_json(value, "initial_state", binary=False)
        if state_type is not None:
            state_type.read(data)
        return data

    if not callable(given):
        make()  # a wrong one is told where it stands
    return make
