"""Every error Antiphon raises.

One root, one `status` per class (the vocabulary of gRPC's status codes), and a builtin as a second base where the
caller may expect one::

    AntiphonError
    ├── InvalidInputError (ValueError)           what was handed in cannot be used
    │   ├── InvalidIdError                       an id with separators, blanks or dots only
    │   ├── NotJsonError                         a value that JSON cannot carry, with its path
    │   ├── HookRegistrationError                a callback that cannot be registered
    │   ├── DuplicateToolError                   two tools under one name
    │   ├── ToolLoadError                        a tool that cannot be found or described
    │   ├── StateValidationError                 a session's state that does not fit its type
    │   ├── StateSignatureError                  a client's state that this server did not give out
    │   ├── ResumeInputError                     an answer to a call that does not wait for it
    │   └── AudioFormatError                     sound that cannot be used or converted
    ├── InvalidTypeError (TypeError)             what was handed in has the wrong type
    ├── ToolNotFoundError (AttributeError)       a direct call of a tool nobody registered
    ├── SnapshotException (ValueError)           a snapshot that cannot be taken or loaded
    │   └── CorruptSnapshotError                 bytes at rest that are not a snapshot
    ├── AudioFileError (OSError)                 a sound file cannot be opened, read or written
    ├── StorageError (OSError)                   a storage could not do what was asked
    │   └── StorageKeyError (ValueError)         a key that no storage accepts
    ├── SessionStoreError                        a session store could not do what was asked
    │   ├── SessionConflictError                 another writer moved the session's tip
    │   ├── ContendedError                       others kept changing what was to be written
    │   │   └── MovedError                       once: the store reads again and plans anew
    │   ├── SnapshotNotFoundError (LookupError)  no row, or no session, of that id
    │   ├── TerminalStatusError                  a settled row was to change its status
    │   ├── StaleEpochError                      a worker whose row was adopted by another
    │   ├── IdempotencyKeyError                  the key belongs to another row
    │   ├── SnapshotExistsError                  the id is taken, where a new one is needed
    │   ├── LeaseLostError                       a lease that was not renewed in time
    │   ├── NotResumableError                    a row that no turn can go on from
    │   ├── TaskLostError                        a run in the background whose worker has gone silent
    │   ├── QueueFullError                       too many runs wait for one session
    │   ├── QueueTimeoutError (TimeoutError)     a run waited too long for its session
    │   ├── SessionRowError (ValueError)         a row, tenant or query that no store takes
    │   ├── CorruptStoreError                    stored bytes are missing or damaged
    │   └── StoreSchemaError                     a place that this version cannot use
    ├── AgentStateError (RuntimeError)           the agent is not in the state this needs
    │   ├── AgentStartedError                    already started
    │   ├── AgentNotStartedError                 not started
    │   └── ConcurrencyException                 another invocation is under way
    ├── StateManagementError                     who keeps the session: the server, or the client
    ├── StateTransformError                      what was to leave the server could not be shaped
    ├── InterruptError (KeyError)                an answer to a question nobody asked
    ├── NotSupportedError (NotImplementedError)  this kind of agent or model does not do that
    ├── MissingExtraError (ImportError)          an optional package is not installed
    ├── SessionSaveError                         the conversation went on, but could not be saved
    ├── ModelError                               a model could not answer
    │   ├── ModelThrottledException              ask again later
    │   ├── ContextWindowOverflowException       the conversation is too long for the model
    │   ├── MaxTokensReachedException            the answer was cut by its token limit
    │   ├── ModelCredentialsError                no key, or one that the provider refuses
    │   ├── ModelNotFoundError                   the provider has no such model
    │   ├── ModelQuotaError                      the account is used up: waiting does not help
    │   ├── ModelRequestError                    the provider refuses what was asked
    │   ├── ModelConnectionError                 the provider cannot be reached
    │   ├── ModelProtocolError                   what came from the provider cannot be read
    │   ├── ModelHistoryLostError                the provider no longer has the history it was to keep
    │   └── ConnectionEndedError                 a live connection ended or would not restart
    ├── TransportError                           a wire failed or was closed; models translate it
    ├── ConnectionTimeoutError (TimeoutError)    a live connection reached its provider's time limit
    └── StopError (RuntimeError)                 several things failed while a call was closed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Status = Literal[
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "FAILED_PRECONDITION",
    "ABORTED",
    "UNAUTHENTICATED",
    "RESOURCE_EXHAUSTED",
    "UNIMPLEMENTED",
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "DATA_LOSS",
    "INTERNAL",
]


class AntiphonError(Exception):
    """Root of every error of this library.

    Attributes:
        status: What kind of failure this is, in the words of gRPC's status codes.
        remedy: What to do about errors of this class, for `docs/errors.md`.
    """

    status: ClassVar[Status] = "INTERNAL"
    remedy: ClassVar[str] = "Please report it."


class InvalidInputError(AntiphonError, ValueError):
    """A value that was handed in cannot be used."""

    status: ClassVar[Status] = "INVALID_ARGUMENT"
    remedy = "Mend the value that the message names."


class InvalidIdError(InvalidInputError):
    """An id that cannot name anything: empty, blank, dots only, or with separators or control characters."""

    remedy = "Use letters, digits, `-`, `_` and single dots."

    def __init__(self, what: str, value: object, why: str) -> None:
        super().__init__(f"{what}={value!r} {why}")
        self.what, self.value = what, value


class NotJsonError(InvalidInputError):
    """A value that JSON cannot carry.

    Attributes:
        path: Where the value stands, such as `state.cart[2].price`.
    """

    remedy = "Store only None, booleans, finite numbers, strings, lists and dicts with string keys."

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path or 'value'} {why}")
        self.path = path


class HookRegistrationError(InvalidInputError):
    """A callback cannot be registered as it is."""

    remedy = "Give the callback's first parameter an event type, or name the event type in `add_hook`."


class DuplicateToolError(InvalidInputError):
    """Two tools have one name, or names that differ only in `-` and `_`."""

    status: ClassVar[Status] = "ALREADY_EXISTS"
    remedy = "Rename one of the tools: `@tool(name=...)`."


class ToolLoadError(InvalidInputError):
    """A tool could not be found, imported or described."""

    remedy = "Give a decorated function, a tool object, a module, `package.module:function` or a path to a `.py` file."


class StateValidationError(InvalidInputError):
    """A session's state does not fit its type.

    Attributes:
        path: Where, such as `state.cart[2].price`.
    """

    remedy = "Mend the value at the path; for states that older versions wrote, register a migration (`StateType`)."

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = path


class StateSignatureError(InvalidInputError):
    """A client handed in a state that this server did not give out, or that was changed since."""

    remedy = "Send back `output.state` as it was given, whole and unchanged."


class ResumeInputError(InvalidInputError):
    """An answer to a tool call that is not waiting, or a call that was changed on its way.

    Attributes:
        tool_use_id: The call that was named.
    """

    remedy = "Answer the calls of the latest model message, with the ids and inputs that it has."

    def __init__(self, tool_use_id: str, why: str) -> None:
        super().__init__(f"tool call {tool_use_id!r} {why}")
        self.tool_use_id = tool_use_id


class AudioFormatError(InvalidInputError):
    """Sound in a format, rate or channel count that cannot be used here."""

    remedy = "Send 16-bit little-endian mono PCM at the rate that the message names."


class InvalidTypeError(AntiphonError, TypeError):
    """An argument has a type that is not supported."""

    status: ClassVar[Status] = "INVALID_ARGUMENT"
    remedy = "Pass one of the types that the message names."


class ToolNotFoundError(AntiphonError, AttributeError):
    """A direct call named a tool that the agent does not have."""

    status: ClassVar[Status] = "NOT_FOUND"
    remedy = "See `agent.tool_names`."


class SnapshotException(AntiphonError, ValueError):
    """A snapshot cannot be taken, read or loaded. Nothing was changed."""

    status: ClassVar[Status] = "INVALID_ARGUMENT"
    remedy = "The message names the field or path that is wrong."


class CorruptSnapshotError(SnapshotException):
    """Bytes at rest are not a snapshot: cut short, overwritten, or not JSON."""

    status: ClassVar[Status] = "DATA_LOSS"
    remedy = "Restore an earlier checkpoint (`list_snapshot_ids`, `restore_snapshot`), or delete the damaged one."


class AudioFileError(AntiphonError, OSError):
    """A sound file cannot be opened, read or written. The original error is chained."""

    status: ClassVar[Status] = "FAILED_PRECONDITION"
    remedy = "Mend the path, its permissions, or the disk's free space; what was recorded so far can be read."


class StorageError(AntiphonError, OSError):
    """A storage could not do what was asked. The original error is chained."""

    status: ClassVar[Status] = "UNAVAILABLE"
    remedy = "See the chained error: disk full, permissions, network. The operation may be retried."


class StorageKeyError(StorageError, ValueError):
    """A key or prefix that no storage accepts."""

    status: ClassVar[Status] = "INVALID_ARGUMENT"
    remedy = "Keys are non-empty, use `/` between segments and contain no backslash, no `..` and no control character."


class SessionStoreError(AntiphonError):
    """A session store could not do what was asked. The driver's error is chained."""

    status: ClassVar[Status] = "UNAVAILABLE"
    remedy = (
        "See the chained error: disk full, permissions, network. The same store can be used again when it is mended."
    )


class SessionConflictError(SessionStoreError):
    """Another writer moved the session's tip since it was read. Nothing was written.

    Attributes:
        session_id: The session.
        expected: The tip that the writer built on; None where it expected no row.
        found: The tip that is there; None where there is no row.
    """

    status: ClassVar[Status] = "ABORTED"
    remedy = "Load the session again and repeat the turn, or branch from the tip you expected."

    def __init__(self, session_id: str, expected: str | None, found: str | None) -> None:
        if expected is None:
            told = f"is there already, with {found!r} as its newest row: load it, or take another id"
        elif found is None:
            told = f"is gone, and {expected!r} with it: somebody deleted it"
        else:
            told = f"moved on from {expected!r} to {found!r}: load it again, or branch from {expected!r}"
        super().__init__(f"session {session_id!r} {told}")
        self.session_id, self.expected, self.found = session_id, expected, found


class ContendedError(SessionStoreError):
    """Others kept changing what was to be written, for as many tries as a store makes. Nothing was written."""

    status: ClassVar[Status] = "ABORTED"
    remedy = "Try again; have fewer writers rewrite one row."


class MovedError(ContendedError):
    """What was read has changed before it could be written. Nothing was written.

    It passes between a store and its backend: the store reads again, and callers see `ContendedError` at most.
    """


class SnapshotNotFoundError(SessionStoreError, LookupError):
    """No row or session has this id, in this tenant.

    Attributes:
        id: The id.
    """

    status: ClassVar[Status] = "NOT_FOUND"
    remedy = (
        "See `list_sessions` and `list_snapshots`; it may have been pruned or deleted, or belong to another tenant."
    )

    def __init__(self, what: str, id: str) -> None:
        super().__init__(f"there is no {what} {id!r}")
        self.id = id


class TerminalStatusError(SessionStoreError):
    """A row that has settled was to change its status. Nothing was written.

    Attributes:
        snapshot_id: The row.
        settled: Its status, for good.
        wanted: The status that was refused.
    """

    status: ClassVar[Status] = "FAILED_PRECONDITION"
    remedy = "Return None from `fn` for a row whose status is settled, or write a new row."

    def __init__(self, snapshot_id: str, settled: str, wanted: str) -> None:
        super().__init__(f"snapshot {snapshot_id!r} is {settled} for good and cannot become {wanted}")
        self.snapshot_id, self.settled, self.wanted = snapshot_id, settled, wanted


class StaleEpochError(SessionStoreError):
    """A worker wrote to a row that another has adopted since. Nothing was written.

    Attributes:
        snapshot_id: The row.
        epoch: The writer's epoch.
        current: The row's.
    """

    status: ClassVar[Status] = "FAILED_PRECONDITION"
    remedy = "Stop: another worker carries this run on."

    def __init__(self, snapshot_id: str, epoch: int, current: int) -> None:
        super().__init__(f"snapshot {snapshot_id!r} was adopted: its epoch is {current}, the writer's is {epoch}")
        self.snapshot_id, self.epoch, self.current = snapshot_id, epoch, current


class IdempotencyKeyError(SessionStoreError):
    """Another row of this tenant has the idempotency key. Nothing was written.

    Attributes:
        key: The key.
        snapshot_id: The row that has it.
    """

    status: ClassVar[Status] = "ALREADY_EXISTS"
    remedy = "The request was carried out before: take the row that `error.snapshot_id` names."

    def __init__(self, key: str, snapshot_id: str) -> None:
        super().__init__(f"idempotency key {key!r} belongs to snapshot {snapshot_id!r}")
        self.key, self.snapshot_id = key, snapshot_id


class SnapshotExistsError(SessionStoreError):
    """A row or session that was to be new is there already. Nothing was written.

    Attributes:
        id: The id.
    """

    status: ClassVar[Status] = "ALREADY_EXISTS"
    remedy = "Delete the session first, or import into another tenant."

    def __init__(self, what: str, id: str) -> None:
        super().__init__(f"{what} {id!r} is there already")
        self.id = id


class LeaseLostError(SessionStoreError):
    """A lease was not renewed in time, or was released.

    Attributes:
        session_id: The session.
        owner: Who had the lease.
    """

    status: ClassVar[Status] = "ABORTED"
    remedy = "Stop working on the session and acquire the lease again; renew it at a third of its time."

    def __init__(self, session_id: str, owner: str) -> None:
        super().__init__(f"{owner!r} does not hold the lease of session {session_id!r} any more")
        self.session_id, self.owner = session_id, owner


class NotResumableError(SessionStoreError):
    """No turn can go on from this row.

    Attributes:
        snapshot_id: The row.
        row_status: Its status.
        resume_from: The row to go on from instead; None when there is none.
    """

    status: ClassVar[Status] = "FAILED_PRECONDITION"
    remedy = "The message says what to do: wait, abort it, adopt it, or resume from the row that it names."

    def __init__(self, snapshot_id: str, row_status: str, remedy: str, resume_from: str | None = None) -> None:
        super().__init__(f"snapshot {snapshot_id!r} is {row_status}: {remedy}")
        self.snapshot_id, self.row_status, self.resume_from = snapshot_id, row_status, resume_from


class TaskLostError(SessionStoreError):
    """A run is waited for whose worker has gone silent. What it had saved is there.

    Attributes:
        snapshot_id: The run's row.
    """

    status: ClassVar[Status] = "ABORTED"
    remedy = "Adopt it (`runner.adopt`), which goes on with it, or abort it, which ends it; or wait again."

    def __init__(self, snapshot_id: str) -> None:
        super().__init__(f"the worker of snapshot {snapshot_id!r} has gone silent: adopt it, or abort it")
        self.snapshot_id = snapshot_id


class QueueFullError(SessionStoreError):
    """As many runs as may wait for one session wait already. Nothing was done."""

    status: ClassVar[Status] = "RESOURCE_EXHAUSTED"
    remedy = "Try again later, or raise `queue_limit`."


class QueueTimeoutError(SessionStoreError, TimeoutError):
    """A run waited for its session for as long as it may. Nothing was done."""

    status: ClassVar[Status] = "DEADLINE_EXCEEDED"
    remedy = "Try again later, or raise `queue_timeout`."


class SessionRowError(SessionStoreError, ValueError):
    """A row, a tenant's name or a query that no store takes. Nothing was written."""

    status: ClassVar[Status] = "INVALID_ARGUMENT"
    remedy = "Mend the value that the message names."


class CorruptStoreError(SessionStoreError):
    """Stored bytes are missing or damaged. What the message does not name can still be read."""

    status: ClassVar[Status] = "DATA_LOSS"
    remedy = "Restore the place from a backup, or delete the session that the message names."


class StoreSchemaError(SessionStoreError):
    """A file, folder or database that this version cannot use: something else's, or a newer version's."""

    status: ClassVar[Status] = "FAILED_PRECONDITION"
    remedy = "Use another place, or upgrade Antiphon."


class AgentStateError(AntiphonError, RuntimeError):
    """The agent is not in the state that this needs."""

    status: ClassVar[Status] = "FAILED_PRECONDITION"
    remedy = "The message says what to call first."


class AgentStartedError(AgentStateError):
    """The agent is started, and this needs it stopped."""

    remedy = "Call `await agent.stop()` first."


class AgentNotStartedError(AgentStateError):
    """The agent is not started."""

    remedy = "Call `await agent.start()` first, or use `async with agent:`."


class ConcurrencyException(AgentStateError):
    """Another invocation of this agent is under way."""

    status: ClassVar[Status] = "ABORTED"
    remedy = "Wait for it, cancel it, or use one agent per conversation."


class StateManagementError(AntiphonError):
    """What was asked needs sessions that the server keeps, or such that the client keeps, and it is the other way."""

    status: ClassVar[Status] = "FAILED_PRECONDITION"
    remedy = "With a store, send `session_id` or `snapshot_id`; without one, send back `state`."


class StateTransformError(AntiphonError):
    """`state_transform` failed, so that nothing left the server. What it raised is chained."""

    remedy = "Mend the transform; the session itself is saved."


class InterruptError(AntiphonError, KeyError):
    """An answer was given to a question that is not open."""

    status: ClassVar[Status] = "NOT_FOUND"
    remedy = "Answer the ids in `result.interrupts`."

    def __str__(self) -> str:
        # KeyError would show the repr of the message.
        return str(self.args[0]) if self.args else ""


class NotSupportedError(AntiphonError, NotImplementedError):
    """This kind of agent, model or storage does not do that."""

    status: ClassVar[Status] = "UNIMPLEMENTED"
    remedy = "The message names what to use instead."


class MissingExtraError(AntiphonError, ImportError):
    """An optional package is not installed.

    Attributes:
        package: The package that could not be imported.
        extra: The extra of `antiphon` that installs it.
    """

    status: ClassVar[Status] = "FAILED_PRECONDITION"
    remedy = "Install the extra that the message names."

    def __init__(self, package: str, extra: str, *, how: str | None = None) -> None:
        way = how or f"pip install 'antiphon[{extra}]'"
        super().__init__(f"{package!r} is not installed: {way}")
        self.package, self.extra = package, extra


class SessionSaveError(AntiphonError):
    """The conversation went on, but its state could not be saved. The storage's error is chained.

    Attributes:
        result: What the invocation returned, or None where there was no result.
    """

    status: ClassVar[Status] = "UNAVAILABLE"
    remedy = "Take the answer from `error.result`; mend the storage; the next save brings everything up to date."

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class ModelError(AntiphonError):
    """A model could not answer.

    Attributes:
        passing: Whether the same request may well succeed in a moment; models ask again by themselves then.
        retry_after_s: How long to wait before that, in seconds, as the provider says; None where it does not say.
    """

    status: ClassVar[Status] = "UNAVAILABLE"
    remedy = "See the message: the provider's own words are in it."
    passing: bool = False

    def __init__(self, message: str = "", *, passing: bool | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        if passing is not None:
            self.passing = passing
        self.retry_after_s = retry_after_s


class ModelThrottledException(ModelError):
    """The provider asks to slow down."""

    passing = True
    status: ClassVar[Status] = "RESOURCE_EXHAUSTED"
    remedy = "Try again later, or with fewer requests at once."


class ContextWindowOverflowException(ModelError):
    """The conversation is longer than the model can read."""

    status: ClassVar[Status] = "RESOURCE_EXHAUSTED"
    remedy = "Use a conversation manager that trims, for example `SlidingWindowConversationManager`."


class MaxTokensReachedException(ModelError):
    """The answer was cut by its token limit, and the part that arrived is in the history."""

    status: ClassVar[Status] = "RESOURCE_EXHAUSTED"
    remedy = "Raise the model's token limit, or ask for less."


class ModelCredentialsError(ModelError):
    """There is no key, or the provider refuses it."""

    status: ClassVar[Status] = "UNAUTHENTICATED"
    remedy = (
        "Give the key as the message says, in the constructor or the environment, and check that it may use the model."
    )


class ModelNotFoundError(ModelError):
    """The provider has no such model, or not for this account or region."""

    status: ClassVar[Status] = "NOT_FOUND"
    remedy = "Check `model_id` against the provider's list of models."


class ModelQuotaError(ModelError):
    """The account's quota or credit is used up. Unlike throttling, waiting does not help."""

    status: ClassVar[Status] = "RESOURCE_EXHAUSTED"
    remedy = "Look at the account's billing and limits with the provider."


class ModelRequestError(ModelError):
    """The provider refuses what was asked; asking the same again gives the same answer."""

    status: ClassVar[Status] = "INVALID_ARGUMENT"
    remedy = (
        "Change what the message names: a parameter, a tool's schema, a content block that the model does not take."
    )


class ModelConnectionError(ModelError):
    """The provider cannot be reached: name, network, TLS, or a server that does not answer."""

    remedy = "Check the network, the endpoint and the certificates that the message names, then try again."


class ModelProtocolError(ModelError):
    """What came from the provider cannot be read."""

    status: ClassVar[Status] = "INTERNAL"
    remedy = "Check that the endpoint is what the model class speaks; else please report it with the message."


class ModelHistoryLostError(ModelError):
    """The provider no longer has the history that it was to keep, and it is nowhere else.

    Attributes:
        response_id: The response that the conversation was to go on from.
    """

    status: ClassVar[Status] = "DATA_LOSS"
    remedy = "`agent.model_state.clear()` begins anew; `keep_history=True` keeps a copy, from a session's beginning on."

    def __init__(self, response_id: str, words: str = "") -> None:
        said = f" ({words})" if words else ""
        super().__init__(
            f"the provider no longer has response {response_id!r}, from which this conversation was to go on{said}: "
            "clear agent.model_state to go on without what was said"
        )
        self.response_id = response_id


class ConnectionEndedError(ModelError):
    """A live connection ended without being asked to, or would not restart."""

    remedy = "Start the agent again: its history is intact and is sent to the new connection."


class TransportError(AntiphonError):
    """A wire could not be opened, failed, or was closed by the other side. Models translate it into a `ModelError`.

    Attributes:
        code: The close code of a websocket, the status of an HTTP refusal, or 0 where the wire broke without a word.
        reason: What the other side said, or what the network did. No secret is in it.
        opened: Whether the wire had been opened.
    """

    status: ClassVar[Status] = "UNAVAILABLE"
    remedy = "Models turn it into an error that says what to do; report it if you see it otherwise."

    def __init__(self, message: str, *, code: int = 0, reason: str = "", opened: bool = True) -> None:
        super().__init__(message)
        self.code, self.reason, self.opened = code, reason, opened


class ConnectionTimeoutError(AntiphonError, TimeoutError):
    """A live connection reached the provider's time limit.

    A model raises it from `receive()`; the agent restarts the connection with `restart_config`, or lets it through
    when automatic restart is off.

    Attributes:
        restart_config: Keyword arguments for the model's `restart`.
    """

    status: ClassVar[Status] = "DEADLINE_EXCEEDED"
    remedy = "Leave `auto_restart` on, or call `start()` again."

    def __init__(self, message: str, **restart_config: Any) -> None:
        super().__init__(message)
        self.restart_config = restart_config


class StopError(AntiphonError, RuntimeError):
    """Several things failed while a call was closed; everything was closed all the same.

    Attributes:
        errors: The failures, in the order in which they happened.
    """

    remedy = "See `error.errors`."

    def __init__(self, errors: Sequence[BaseException]) -> None:
        told = "; ".join(f"{type(error).__name__}: {error}" for error in errors)
        super().__init__(f"{len(errors)} failures while stopping: {told}")
        self.errors = tuple(errors)
