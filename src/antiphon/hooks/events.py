"""Hook events: the moments at which callbacks run.

An event's fields cannot be assigned, save those named in its `writable`. After-events run callbacks in reverse order of
registration (within one `order`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal

from antiphon.content import Message, Messages, ToolResult, ToolUse
from antiphon.hooks.registry import BaseHookEvent
from antiphon.interrupts import InterruptState, interrupt_id
from antiphon.local_agent import AgentT_co
from antiphon.results import AgentResult
from antiphon.tools.base import AgentTool


@dataclass(kw_only=True)
class HookEvent(BaseHookEvent, Generic[AgentT_co]):
    """Base of the events that carry an agent."""

    agent: AgentT_co

    if TYPE_CHECKING:

        @property
        def _shown_to(self) -> Callable[[AgentT_co], None]: ...


@dataclass(kw_only=True)
class AgentInitializedEvent(HookEvent[AgentT_co]):
    """The agent is constructed; a session is restored here. Synchronous callbacks only."""

    synchronous: ClassVar[bool] = True


@dataclass(kw_only=True)
class BeforeInvocationEvent(HookEvent[AgentT_co]):
    """An `Agent`'s invocation begins.

    Attributes:
        messages: The new messages of the prompt; may be replaced.
        cancel: Set to a text (or True) to end the invocation before the model is asked.
    """

    writable: ClassVar[frozenset[str]] = frozenset({"messages", "cancel"})
    invocation_state: dict[str, Any] = field(default_factory=dict[str, Any])
    messages: Messages = field(default_factory=Messages)
    cancel: bool | str = False


@dataclass(kw_only=True)
class AfterInvocationEvent(HookEvent[AgentT_co]):
    """An `Agent`'s invocation ended, well or badly: the completion boundary.

    Attributes:
        result: What it came to; None when it failed.
        resume: Set to a prompt to go on with it at once.
    """

    reverse: ClassVar[bool] = True
    writable: ClassVar[frozenset[str]] = frozenset({"resume"})
    invocation_state: dict[str, Any] = field(default_factory=dict[str, Any])
    result: AgentResult | None = None
    resume: Any = None


@dataclass(kw_only=True)
class MessageAddedEvent(HookEvent[AgentT_co]):
    """A message was committed: it is the latest in `agent.messages` (of a group of two: the first comes first)."""

    message: Message


@dataclass(kw_only=True)
class MessageUpdatedEvent(HookEvent[AgentT_co]):
    """A committed message was replaced in place: a late transcript, a shorter heard part, a redaction.

    Attributes:
        message: The new message.
        tracking_id: Its `tracking_id`, where it has one.
        index: Where it stands in `agent.messages`.
    """

    message: Message
    tracking_id: str = ""
    index: int = -1


@dataclass(kw_only=True)
class BeforeModelCallEvent(HookEvent[AgentT_co]):
    """The model is about to be asked.

    Attributes:
        projected_input_tokens: How many tokens the request will have, as far as that can be told; None: it cannot.
        cancel: Set to a text (or True) to answer with that instead.
    """

    writable: ClassVar[frozenset[str]] = frozenset({"cancel"})
    invocation_state: dict[str, Any] = field(default_factory=dict[str, Any])
    projected_input_tokens: int | None = None
    cancel: bool | str = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStopResponse:
    """An answer and why it ended."""

    message: Message
    stop_reason: str


@dataclass(kw_only=True)
class AfterModelCallEvent(HookEvent[AgentT_co]):
    """The model answered, or failed.

    Attributes:
        message: The answer, when there is one.
        stop_reason: Why it ended.
        exception: The failure, when there was one.
        retry: Set to True to ask again; the answer is then discarded.
    """

    reverse: ClassVar[bool] = True
    writable: ClassVar[frozenset[str]] = frozenset({"retry"})
    invocation_state: dict[str, Any] = field(default_factory=dict[str, Any])
    message: Message | None = None
    stop_reason: str | None = None
    exception: Exception | None = None
    retry: bool = False

    @property
    def stop_response(self) -> ModelStopResponse | None:
        """The answer with its stop reason; None when the model failed. Of an answer without words the content is empty."""
        if self.stop_reason is None:
            return None
        said: Message = {"role": "assistant", "content": []} if self.message is None else self.message
        return ModelStopResponse(message=said, stop_reason=self.stop_reason)


@dataclass(kw_only=True)
class BeforeToolCallEvent(HookEvent[AgentT_co]):
    """A tool is about to run.

    Attributes:
        selected_tool: The tool; may be replaced. None when nobody registered the name.
        tool_use: The call; may be replaced, save its `toolUseId`. Under another name, the tool of that name runs.
        cancel_tool: Set to a text (or True) to refuse the call; the model gets it as an error result.
        interrupt_state: Where questions are kept; use `interrupt`.
        interruptible: Whether a person can be asked: not in a direct call.
    """

    writable: ClassVar[frozenset[str]] = frozenset({"selected_tool", "tool_use", "cancel_tool"})
    selected_tool: AgentTool | None
    tool_use: ToolUse
    invocation_state: dict[str, Any] = field(default_factory=dict[str, Any])
    cancel_tool: bool | str = False
    interrupt_state: InterruptState = field(default_factory=InterruptState)
    interruptible: bool = True

    def interrupt(self, name: str, reason: Any = None, response: Any = None) -> Any:
        """The answer to the question `name`, or pause this call until somebody answers.

        Args:
            name: Unique within this call.
            reason: What the person is shown; JSON.
            response: An answer given in advance.

        Raises:
            InterruptException: When there is no answer yet; let it through.
        """
        key = interrupt_id("before_tool_call", self.tool_use["toolUseId"], name)
        return self.interrupt_state.ask(key, name, reason, response)


@dataclass(kw_only=True)
class AfterToolCallEvent(HookEvent[AgentT_co]):
    """A tool finished, failed or was refused.

    Attributes:
        result: What the model will get; may be replaced.
        exception: What the tool raised.
        cancel_message: Why the call was refused.
        duration: How long it took, in seconds.
        retry: Set to True to run it again, the hooks before it included; the result is then discarded. It has no effect
            once the agent is cancelled.
    """

    reverse: ClassVar[bool] = True
    writable: ClassVar[frozenset[str]] = frozenset({"result", "retry"})
    selected_tool: AgentTool | None
    tool_use: ToolUse
    result: ToolResult
    invocation_state: dict[str, Any] = field(default_factory=dict[str, Any])
    exception: Exception | None = None
    cancel_message: str | None = None
    duration: float = 0.0
    retry: bool = False


@dataclass(kw_only=True)
class BidiAgentStopEvent(HookEvent[AgentT_co]):
    """A live call has ended and is cleaned up: the completion boundary of a `BidiAgent`."""

    reverse: ClassVar[bool] = True


@dataclass(kw_only=True)
class BidiResponseCompleteEvent(HookEvent[AgentT_co]):
    """The model has delivered one response; its sound may still be playing."""

    response_id: str


@dataclass(kw_only=True)
class BidiBargeInHookEvent(HookEvent[AgentT_co]):
    """The user spoke over the model.

    Attributes:
        response_id: The response that was cut; empty when none was under way.
    """

    response_id: str = ""


@dataclass(kw_only=True)
class BidiBeforeConnectionRestartEvent(HookEvent[AgentT_co]):
    """The connection is about to be opened anew: a completion boundary."""

    reason: Literal["timeout", "scheduled"]
    timeout_error: Exception | None = None


@dataclass(kw_only=True)
class BidiAfterConnectionRestartEvent(HookEvent[AgentT_co]):
    """The connection was opened anew, or could not be.

    Attributes:
        exception: Why it could not be.
    """

    reason: Literal["timeout", "scheduled"]
    exception: Exception | None = None


@dataclass(kw_only=True)
class JournalChangedEvent(HookEvent[AgentT_co]):
    """What is open beside the committed history has changed: see `agent.take_journal()`.

    Awaited where something must be known before it happens (a tool starts, a person is asked); at most every 250 ms
    while the agent speaks.

    Attributes:
        unsaved: Set by whoever keeps the journal and could not write it yet: a call that must not run twice then waits.
    """

    writable: ClassVar[frozenset[str]] = frozenset({"unsaved"})
    unsaved: Exception | None = None


@dataclass(kw_only=True)
class SessionSaveFailedEvent(HookEvent[AgentT_co]):
    """A save failed and will be tried again.

    Attributes:
        error: The storage's error.
        attempt: How many attempts have failed in a row, from 1.
    """

    error: Exception
    attempt: int
