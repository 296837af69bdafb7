"""A turn that is under way: the model's message with its calls, and what became of them so far.

Call and results enter the history together, once all results are there. Until then the turn stands beside the history: in
the journal while tools run, in `interrupt_state.context` while people are asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from antiphon.content import Message, Messages, ToolResult, ToolUse, error_result
from antiphon.conversation.journal import RESTART_TEXT, Journal, OpenCall, result_message, tool_uses
from antiphon.errors import SnapshotException
from antiphon.interrupts import Interrupt, InterruptState

_WHERE = ("tool_call", "before_tool_call")


@dataclass(slots=True)
class OpenTurn:
    """A model's message with calls, not all of which have a result.

    Attributes:
        message: The model's message.
        results: What is known, by `toolUseId`.
        started: Calls that may have begun to work, and whether they may run again.
        prompt: Messages that enter the history after this turn: a prompt that came while it was open.
    """

    message: Message
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    started: dict[str, bool] = field(default_factory=dict[str, bool])
    prompt: Messages = field(default_factory=Messages)

    def calls(self) -> list[ToolUse]:
        """All calls, in the order in which the model made them."""
        return tool_uses(self.message)

    def left(self) -> list[ToolUse]:
        """The calls without a result."""
        return [call for call in self.calls() if call["toolUseId"] not in self.results]

    def settle(self, text: str) -> None:
        """Give every call without a result the error result `text`."""
        for call in self.left():
            self.results[call["toolUseId"]] = error_result(call["toolUseId"], text)

    def messages(self) -> tuple[Message, Message]:
        """The turn as it enters the history. Every call has a result by then."""
        return self.message, result_message([self.results[call["toolUseId"]] for call in self.calls()])

    def journal(self, mark: int, interrupts: InterruptState) -> Journal:
        """What a process that goes on after a crash must know of this turn."""
        questions = interrupts.open()
        return Journal(
            mark,
            (self.message, *self.prompt),
            tuple(
                OpenCall(
                    call,
                    started=call["toolUseId"] in self.started,
                    repeatable=self.started.get(call["toolUseId"], False),
                    question=question_of(call, questions),
                    result=self.results.get(call["toolUseId"]),
                )
                for call in self.calls()
            ),
        )

    def context(self) -> dict[str, Any]:
        """The turn as `InterruptState.context` keeps it: the two keys that Strands uses, and two of ours."""
        kept: dict[str, Any] = {
            "tool_use_message": self.message,
            "tool_results": [
                self.results[call["toolUseId"]] for call in self.calls() if call["toolUseId"] in self.results
            ],
        }
        if self.prompt:
            kept["prompt"] = self.prompt
        if started := {key: repeatable for key, repeatable in self.started.items() if key not in self.results}:
            kept["started"] = started
        return kept

    @classmethod
    def from_context(cls, context: dict[str, Any]) -> OpenTurn | None:
        """The turn that `context()` gave; None when there is none in it.

        A call that was started then, and may not run twice, has the result "interrupted by a restart".

        Raises:
            SnapshotException: If the context has another shape.
        """
        if "tool_use_message" not in context:
            return None
        try:
            message = cast("Message", context["tool_use_message"])
            known = cast("list[ToolResult]", context.get("tool_results") or [])
            results = {result["toolUseId"]: result for result in known}
            prompt = list(cast("Messages", context.get("prompt") or []))
            for key, repeatable in cast("dict[str, bool]", context.get("started") or {}).items():
                if not repeatable:
                    results.setdefault(key, error_result(key, RESTART_TEXT))
            if not tool_uses(message) or message["role"] != "assistant":
                raise SnapshotException("interrupt_state.context.tool_use_message calls no tool")
        except (KeyError, TypeError, AttributeError) as error:
            raise SnapshotException(f"interrupt_state.context is malformed: {error!r}") from error
        return cls(message, results, prompt=prompt)


def question_of(call: ToolUse, questions: Iterable[Interrupt]) -> Interrupt | None:
    """The first of `questions` that belongs to `call`."""
    # An id may hold colons; what follows it, a name's UUID, does not.
    own = {f"v1:{where}:{call['toolUseId']}" for where in _WHERE}
    return next((question for question in questions if question.id.rpartition(":")[0] in own), None)


@dataclass(slots=True)
class Track:
    """Where an agent stands beside its history.

    Attributes:
        turn: The turn that is under way.
        mark: Turns with calls, and prompts that waited for them, that were settled so far in the life of the session: see
            `Journal.mark`.
        sent: Of a stateful model: how many messages of the history the provider has already.
        checked: Whether the history was looked through for what providers refuse since it was handed in.
    """

    turn: OpenTurn | None = None
    mark: int = 0
    sent: int = 0
    checked: bool = False
