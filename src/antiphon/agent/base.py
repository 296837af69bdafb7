"""What both kinds of agent share: construction, prompt, tools, direct calls, snapshots."""

from __future__ import annotations

import threading
import weakref
from abc import abstractmethod
from collections.abc import Collection
from typing import Any, cast

from antiphon.agent.blocking import run_blocking
from antiphon.content import Message, Messages, SystemContentBlock, ToolResult, ToolUse
from antiphon.conversation.repair import without_dangling_tail
from antiphon.errors import (
    AgentStartedError,
    ConcurrencyException,
    InvalidInputError,
    InvalidTypeError,
    NotJsonError,
    NotSupportedError,
    SnapshotException,
)
from antiphon.hooks.events import AgentInitializedEvent, MessageAddedEvent
from antiphon.hooks.registry import EventTypes, HookCallback, HookProvider, HookRegistry
from antiphon.ids import check_id, new_uuid7
from antiphon.interrupts import InterruptState
from antiphon.jsonable import copy_json
from antiphon.local_agent import LocalAgent, SharedEventT
from antiphon.results import Usage
from antiphon.sandbox import HostSandbox
from antiphon.session.base import SessionManager
from antiphon.snapshot.checks import check_snapshot
from antiphon.snapshot.envelope import SCHEMA_VERSION, Snapshot
from antiphon.snapshot.fields import SnapshotField, SnapshotPreset, resolve_fields
from antiphon.state import AgentState
from antiphon.storage.base import Storage
from antiphon.tools.direct import ToolCaller, recorded_messages
from antiphon.tools.registry import ToolRegistry, ToolSource
from antiphon.turn import Turn

DEFAULT_ID = "default"
DEFAULT_NAME = "Antiphon Agent"


class BaseAgent(LocalAgent):
    """Base of both agents.

    A subclass has a `kind` and a `model`, ends its constructor with `_finish_construction()`, and fills in what is
    abstract here.

    Attributes:
        usage: Tokens that the model has told of since the agent was made, also those of answers that failed or were cut.
    """

    def __init__(
        self,
        *,
        tools: ToolSource | None = None,
        system_prompt: str | list[SystemContentBlock] | None = None,
        messages: Messages | None = None,
        record_direct_tool_call: bool = True,
        agent_id: str | None = None,
        name: str | None = None,
        description: str | None = None,
        hooks: list[HookProvider] | None = None,
        state: AgentState | dict[str, Any] | None = None,
        session_manager: SessionManager[Any] | None = None,
        storage: Storage | None = None,
    ) -> None:
        """Take over what was given; nobody is told before `_finish_construction`.

        Args:
            tools: Tools, in any of the forms that `ToolRegistry.register` takes.
            system_prompt: A text, or structured blocks, which stay as they are.
            messages: A history to begin with; the list itself is used, and appended to.
            record_direct_tool_call: Whether `agent.tool.name(...)` is written into the history.
            agent_id: Names the agent within its session (default `default`).
            name: For people (default `Antiphon Agent`).
            description: For people, and for agents that use this one.
            hooks: Objects that bring callbacks.
            state: Application state; an `AgentState` is used as it is.
            session_manager: Restores the agent at the end of its construction, and saves it.
            storage: For subsystems that were given no storage of their own.

        Raises:
            InvalidIdError: If `agent_id` cannot name an agent.
            InvalidInputError: If `state` is neither an `AgentState` nor a dict of JSON.
            InvalidTypeError: If another argument has a type that cannot be used.
            DuplicateToolError: If two tools have one name.
            ToolLoadError: If a tool cannot be loaded.
        """
        _check_types(messages=messages, hooks=hooks, session_manager=session_manager, storage=storage, name=name)
        self.agent_id: str = check_id("agent_id", DEFAULT_ID if agent_id is None else agent_id)
        self.name: str = DEFAULT_NAME if name is None else name
        self.description: str | None = description
        self.messages: Messages = [] if messages is None else messages
        self.state: AgentState = _state_from(state)
        self.interrupt_state = InterruptState()
        self.turn: Turn | None = None
        self.usage = Usage()
        self.record_direct_tool_call = record_direct_tool_call
        self._prompt: list[SystemContentBlock] | None = _prompt_blocks(system_prompt)
        self._session_manager = session_manager
        self._session_id = new_uuid7()[-8:] if session_manager is None else session_manager.session_id
        self._storage = storage
        self._cancel_signal = threading.Event()
        self.hooks: HookRegistry = HookRegistry()
        # The manager before the users' hooks: an AgentInitializedEvent hook sees what was restored, on both kinds of
        # agent, and after-events, which run in reverse, are saved last.
        for provider in [*([session_manager] if session_manager is not None else []), *(hooks or [])]:
            self.hooks.add_hook(provider)
        self.tool_registry = ToolRegistry(tools if tools is not None else ())
        weakref.finalize(self, self.tool_registry.release)
        self._tool_caller = ToolCaller(
            self,
            self.tool_registry,
            recording=lambda: self.record_direct_tool_call,
            may_record=self._refuse_recording,
            record=self._record_direct_call,
        )

    def _finish_construction(self) -> None:
        """Restore the session and tell everybody that the agent is there: the last step of a constructor."""
        self.hooks.invoke_callbacks(AgentInitializedEvent(agent=self))

    # --- what was given, and small questions ---

    @property
    def tool(self) -> ToolCaller:
        """The tools as methods: `agent.tool.calculator(expression="2+2")`."""
        return self._tool_caller

    @property
    def tool_names(self) -> list[str]:
        """The names of all tools, in order of registration."""
        return self.tool_registry.names()

    @property
    def system_prompt(self) -> str | None:
        """The texts of the system prompt, joined by newlines; None when it has none.

        May be set to a text, to structured blocks (see `system_prompt_content`), or to None.
        """
        texts = [block["text"] for block in self._prompt or [] if "text" in block]
        return "\n".join(texts) if texts else None

    @system_prompt.setter
    def system_prompt(self, value: str | list[SystemContentBlock] | None) -> None:
        self._prompt = _prompt_blocks(value)

    @property
    def system_prompt_content(self) -> list[SystemContentBlock] | None:
        """The system prompt as structured blocks: a copy of the list."""
        return None if self._prompt is None else list(self._prompt)

    @property
    def session_id(self) -> str:
        """The session of the turn, or the session manager's; without either, 8 hex digits."""
        return self._session_id if self.turn is None else self.turn.session_id

    @property
    def session_manager(self) -> SessionManager[Any] | None:
        """Who saves this agent, as given."""
        return self._session_manager

    @property
    def storage(self) -> Storage | None:
        """Where subsystems keep their data when they were given no storage of their own."""
        return self._storage

    @property
    def sandbox(self) -> HostSandbox:
        """Where tool code runs: on the host, isolated from nothing."""
        return HostSandbox()

    @property
    def context_manager(self) -> None:
        """Always None: there are no context managers yet."""
        return

    @property
    def event_loop_metrics(self) -> Any:
        """Not collected.

        Raises:
            NotSupportedError: Always.
        """
        raise NotSupportedError(
            f"event_loop_metrics is not supported by {type(self).__name__} yet: see the usage events"
        )

    @property
    def cancel_signal(self) -> threading.Event:
        """Set while a cancellation is under way: the same object for the agent's life. Call `cancel()`, do not set it."""
        return self._cancel_signal

    def add_hook(
        self,
        callback: HookCallback[SharedEventT],
        event_type: EventTypes[SharedEventT] = None,
        *,
        order: float = 0,
    ) -> None:
        """Call `callback` with each event of these classes.

        Args:
            callback: A function or object, synchronous or asynchronous.
            event_type: An event class, a list of them, or None to read them from the first parameter's annotation
                (unions count for each member).
            order: Lower runs first: see `HookOrder`.

        Raises:
            HookRegistrationError: If no event class can be told, or an asynchronous callback is added to an event that
                takes synchronous ones only.
        """
        self.hooks.add_callback(event_type, callback, order=order)

    def cleanup(self) -> None:
        """Tell tool providers that this agent no longer uses them. It happens by itself when the agent is forgotten."""
        self.tool_registry.release()

    # --- messages ---

    def _settled_messages(self) -> Messages:
        """The committed history as a new list, without calls at its end that have no results."""
        return without_dangling_tail(self.messages)

    def _refuse_recording(self) -> None:
        try:
            self._refuse_while_active("recording a direct tool call")
        except AgentStartedError as error:
            raise ConcurrencyException(f"{error}; or call it with record_direct_tool_call=False") from None

    def _record_direct_call(self, tool_use: ToolUse, result: ToolResult, override: str | None) -> None:
        messages = recorded_messages(tool_use, result, override)
        if self.hooks.listens(MessageAddedEvent):
            run_blocking(lambda: commit(self, *messages))
        else:
            self.messages.extend(messages)

    # --- snapshots ---

    def take_snapshot(
        self,
        *,
        preset: SnapshotPreset | None = None,
        include: Collection[SnapshotField] | None = None,
        exclude: Collection[SnapshotField] | None = None,
        app_data: dict[str, Any] | None = None,
    ) -> Snapshot:
        """The committed history and state, as independent copies.

        Open transcripts, running answers and calls without a result are not part of it.

        Args:
            preset: A named set of fields; `session` is everything but the system prompt.
            include: Fields beyond the preset.
            exclude: Fields to leave out after all.
            app_data: JSON of the application's own, kept as it is.

        Raises:
            SnapshotException: If no field is left, a field or preset is not this kind's, or a value is not JSON.
        """
        fields = resolve_fields(self.kind, preset=preset, include=include, exclude=exclude)
        try:
            return Snapshot(
                scope="agent",
                schema_version=SCHEMA_VERSION,
                data={name: copy_json(self._capture_field(name), f"data.{name}") for name in fields},
                app_data=copy_json(app_data or {}, "app_data"),
            )
        except NotJsonError as error:
            raise SnapshotException(str(error)) from error

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Take over a snapshot. Everything is checked before anything is changed.

        A field that the snapshot does not have is left as it is, one that this kind of agent does not own is ignored; a
        system prompt of None clears the prompt. `messages` stays the list it is.

        Raises:
            SnapshotException: If the snapshot is malformed, of another scope, or of a newer schema.
            AgentStateError: While a live call or an invocation is under way.
        """
        self._refuse_while_active("loading a snapshot")
        fields = self._prepare_fields(check_snapshot(snapshot, self.kind))
        for name, value in fields.items():
            self._apply_field(name, value)

    def _prepare_fields(self, fields: dict[SnapshotField, Any]) -> dict[SnapshotField, Any]:
        """Look at checked fields once more before the first is applied; the last chance to refuse, or to change them."""
        return fields

    def _capture_field(self, name: SnapshotField) -> Any:
        """The value of a field. Copied by the caller at once."""
        match name:
            case "messages":
                return self._settled_messages()
            case "state":
                return self.state.get()
            case "system_prompt":
                return self._prompt
            case _:
                raise SnapshotException(f"{type(self).__name__} owns no {name!r}")

    def _apply_field(self, name: SnapshotField, value: Any) -> None:
        """Take over a checked value, which is the agent's own from now on. Must not fail."""
        match name:
            case "messages":
                self.messages[:] = value
            case "state":
                self.state.replace(value)
            case "system_prompt":
                self._prompt = value
            case _:
                raise SnapshotException(f"{type(self).__name__} owns no {name!r}")

    @abstractmethod
    def _refuse_while_active(self, what: str) -> None:
        """Raise `AgentStartedError` or `ConcurrencyException` while `what` would disturb something under way."""


async def commit(agent: LocalAgent, *messages: Message) -> None:
    """Append messages to an agent's history, all at once, and tell each."""
    agent.messages.extend(messages)
    if agent.hooks.listens(MessageAddedEvent):
        for message in messages:
            await agent.hooks.invoke_callbacks_async(MessageAddedEvent(agent=agent, message=message))


def _check_types(*, messages: object, hooks: object, session_manager: object, storage: object, name: object) -> None:
    if messages is not None:
        if not isinstance(messages, list):
            raise InvalidTypeError(f"messages={messages!r} is not a list of messages")
        entries = cast("list[object]", messages)
        for index, message in enumerate(entries):
            fields = cast("dict[str, object]", message) if isinstance(message, dict) else {}
            if "role" not in fields or not isinstance(fields.get("content"), list):
                raise InvalidTypeError(f"messages[{index}]={message!r} is not a dict with a role and a list of content")
    if hooks is not None and not isinstance(hooks, (list, tuple)):
        raise InvalidTypeError(f"hooks={hooks!r} is not a list of hook providers")
    if session_manager is not None and not isinstance(session_manager, SessionManager):
        raise InvalidTypeError(f"session_manager={session_manager!r} is not a SessionManager")
    if storage is not None and not isinstance(storage, Storage):
        raise InvalidTypeError(f"storage={storage!r} is not a Storage: it needs write, read, delete and list")
    if name is not None and not isinstance(name, str):
        raise InvalidTypeError(f"name={name!r} is not a string")


def _state_from(state: object) -> AgentState:
    if isinstance(state, AgentState):
        return state
    if state is None or isinstance(state, dict):
        return AgentState(cast("dict[str, Any] | None", state))
    raise InvalidInputError(f"state={state!r} must be an AgentState or a dict of JSON values")


def _prompt_blocks(value: object) -> list[SystemContentBlock] | None:
    if value is None or isinstance(value, list):
        return cast("list[SystemContentBlock] | None", value)
    if isinstance(value, str):
        return [{"text": value}]
    raise InvalidTypeError(f"system_prompt={value!r} must be a string, a list of system content blocks, or None")
