"""Small agents for tests of session managers: real ones of both kinds, without a model to drive them."""

from typing import Any, ClassVar

from antiphon.agent.base import BaseAgent, commit
from antiphon.content import Message
from antiphon.conversation.journal import Journal, OpenCall, pair, recover
from antiphon.errors import AgentStartedError
from antiphon.hooks.events import (
    AfterInvocationEvent,
    BidiAgentStopEvent,
    BidiBeforeConnectionRestartEvent,
    JournalChangedEvent,
    MessageUpdatedEvent,
)
from antiphon.hooks.registry import HookOrder
from antiphon.results import AgentResult
from antiphon.snapshot.fields import LIVE, TURNS, AgentKind


class QuietModel:
    """A model that is never asked."""

    def __init__(self, *, stateful: bool = False) -> None:
        self.stateful = stateful

    def get_config(self) -> dict[str, Any]:
        return {}

    def update_config(self, **config: Any) -> None:
        pass


def said(text: str, role: str = "user", **more: Any) -> Message:
    return {"role": role, "content": [{"text": text}], **more}


class PlainAgent(BaseAgent):
    """What a session manager sees of an agent; the test says what happens to it."""

    kind: ClassVar[AgentKind]

    def __init__(self, session_manager=None, *, model=None, **more: Any) -> None:
        super().__init__(session_manager=session_manager, **more)
        self.quiet = model or QuietModel()
        self.model_state: dict[str, Any] = {}
        self.manager_state: dict[str, Any] = {}
        self.mark = 0
        self.lines: list[Message] = []
        self.calls: list[OpenCall] = []
        self.started = False
        self._finish_construction()

    @property
    def model(self):
        return self.quiet

    def cancel(self, *, message: str | None = None, after_current_tools: bool = False) -> None:
        pass

    # --- what happens ---

    async def add(self, *texts: str) -> None:
        await commit(self, *(said(text, "user" if index % 2 == 0 else "assistant") for index, text in enumerate(texts)))

    async def hear(self, text: str, role: str = "user") -> None:
        """A line is open, not committed yet."""
        self.lines.append(said(text, role))
        await self.hooks.invoke_callbacks_async(JournalChangedEvent(agent=self))

    async def settle(self, *, tell: bool = True) -> None:
        """The oldest open line is committed."""
        self.mark += 1
        await commit(self, self.lines.pop(0))
        if tell:
            await self.hooks.invoke_callbacks_async(JournalChangedEvent(agent=self))

    async def call(self, key: str, **more: Any) -> None:
        """A tool is about to start."""
        self.calls.append(OpenCall({"toolUseId": key, "name": "tool", "input": {}}, **more))
        await self.hooks.invoke_callbacks_async(JournalChangedEvent(agent=self))

    async def answer(self, text: str = "done") -> None:
        """The oldest open call has its result."""
        call = self.calls.pop(0)
        result = {"toolUseId": call.tool_use["toolUseId"], "status": "success", "content": [{"text": text}]}
        await commit(self, *pair(call.tool_use, result))
        await self.hooks.invoke_callbacks_async(JournalChangedEvent(agent=self))

    async def update(self, index: int, message: Message) -> None:
        self.messages[index] = message
        await self.hooks.invoke_callbacks_async(MessageUpdatedEvent(agent=self, message=message, index=index))

    async def finish(self, result: AgentResult | None = None) -> None:
        """The completion boundary of this kind."""
        event = BidiAgentStopEvent(agent=self) if self.kind.live else AfterInvocationEvent(agent=self, result=result)
        await self.hooks.invoke_callbacks_async(event)

    async def restart(self) -> None:
        await self.hooks.invoke_callbacks_async(BidiBeforeConnectionRestartEvent(agent=self, reason="scheduled"))

    def texts(self) -> list[str]:
        return [block.get("text", "") for message in self.messages for block in message["content"]]

    # --- snapshots and the journal ---

    def take_journal(self) -> Journal:
        return Journal(self.mark, tuple(self.lines), tuple(self.calls))

    def load_journal(self, journal: Journal) -> None:
        recovery = recover(journal, self.messages)
        self.messages.extend(recovery.messages)
        self.lines = []
        self.calls = [*recovery.again, *recovery.waiting]
        self.mark = recovery.mark

    def _capture_field(self, name):
        match name:
            case "interrupt_state":
                return self.interrupt_state.to_dict()
            case "conversation_manager_state":
                return self.manager_state
            case "model_state":
                return self.model_state
            case _:
                return super()._capture_field(name)

    def _apply_field(self, name, value) -> None:
        match name:
            case "conversation_manager_state":
                self.manager_state = value
            case "model_state":
                self.model_state = value
            case "interrupt_state":
                pass
            case _:
                super()._apply_field(name, value)

    def _refuse_while_active(self, what: str) -> None:
        if self.started:
            raise AgentStartedError("agent started | call stop before loading a snapshot")


class TurnAgent(PlainAgent):
    kind: ClassVar[AgentKind] = TURNS


class LiveAgent(PlainAgent):
    kind: ClassVar[AgentKind] = LIVE


KINDS = [TurnAgent, LiveAgent]


class AtTheEnd:
    """A user's hook that changes the state at the boundary, as late as users may."""

    def register_hooks(self, registry, **kwargs: Any) -> None:
        def change(event) -> None:
            event.agent.state.set("last", "word")

        registry.add_callback(
            [AfterInvocationEvent, BidiAgentStopEvent, BidiBeforeConnectionRestartEvent],
            change,
            order=HookOrder.SDK_LAST - 1,
        )
