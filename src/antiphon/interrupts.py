"""Questions to a person: a tool or a hook pauses its call until somebody answers."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from antiphon.errors import InterruptError, InvalidInputError, InvalidTypeError
from antiphon.jsonable import copy_json

_NAMES = uuid.NAMESPACE_OID  # as in Strands, so that the questions of a session that it wrote keep their ids


@dataclass(frozen=True, slots=True)
class Interrupt:
    """A question that waits for an answer.

    Attributes:
        id: `v1:<tool_call | before_tool_call>:<toolUseId>:<uuid5 of the name>`: the same call and name give the same id.
        name: What is asked, unique within one call.
        reason: What the person is shown; JSON.
        response: The answer, once there is one.
    """

    id: str
    name: str
    reason: Any = None
    response: Any = None

    def answer(self, response: Any) -> dict[str, Any]:
        """A person's answer, as an agent takes it: `agent([question.answer("yes")])`, or `send` of the same list.

        >>> Interrupt("v1:tool_call:t1:x", "sure").answer("yes")
        {'interruptResponse': {'interruptId': 'v1:tool_call:t1:x', 'response': 'yes'}}
        """
        return {"interruptResponse": {"interruptId": self.id, "response": response}}

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "reason": self.reason, "response": self.response}


class InterruptException(Exception):  # a signal, not an error
    """Carries a question out of a tool or a hook. Never catch it there."""

    def __init__(self, interrupt: Interrupt) -> None:
        super().__init__(f"waiting for an answer to {interrupt.name!r}")
        self.interrupt = interrupt


def interrupt_id(where: str, tool_use_id: str, name: str) -> str:
    """The id of the question `name` asked by a call. `where` is `tool_call` or `before_tool_call`."""
    return f"v1:{where}:{tool_use_id}:{uuid.uuid5(_NAMES, name)}"


@dataclass(slots=True)
class InterruptState:
    """The questions of one agent: asked, answered, and the calls that wait for them.

    Attributes:
        interrupts: By id; those answered keep their response until the turn is over.
        context: What the agent needs to go on where it paused; JSON.
        activated: Whether the agent waits for a person.
        version: How often this was changed.
    """

    interrupts: dict[str, Interrupt] = field(default_factory=dict[str, Interrupt])
    context: dict[str, Any] = field(default_factory=dict[str, Any])
    activated: bool = False
    version: int = 0

    def ask(self, interrupt_id: str, name: str, reason: Any = None, response: Any = None) -> Any:
        """The answer to a question, when there is one.

        Raises:
            InterruptException: With the question, when there is none yet.
        """
        known = self.interrupts.get(interrupt_id)
        if known is not None and known.response is not None:
            return known.response
        if response is not None:
            return response
        question = Interrupt(interrupt_id, name, copy_json(reason, f"reason of {name!r}"))
        self.interrupts[interrupt_id] = question
        self.version += 1
        raise InterruptException(question)

    def activate(self, context: dict[str, Any] | None = None) -> None:
        """The agent waits for a person from now on."""
        self.activated = True
        self.context = context or {}
        self.version += 1

    def deactivate(self) -> None:
        """Every question is settled: forget them."""
        if self.activated or self.interrupts or self.context:
            self.interrupts, self.context, self.activated = {}, {}, False
            self.version += 1

    def resume(self, prompt: object) -> None:
        """Take the answers `[{"interruptResponse": {"interruptId": ..., "response": ...}}, ...]`.

        Raises:
            InvalidTypeError: If `prompt` is not a list of such blocks.
            InterruptError: If an id names no open question. No answer is taken then.
        """
        answers = interrupt_responses(prompt)
        waiting = {question.id for question in self.open()}
        unknown = [key for key in answers if key not in waiting]
        if unknown:
            raise InterruptError(f"no open question has the id {unknown[0]!r}; open are {sorted(waiting)!r}")
        for key, response in answers.items():
            question = self.interrupts[key]
            self.interrupts[key] = Interrupt(question.id, question.name, question.reason, response)
        self.version += 1

    def open(self) -> list[Interrupt]:
        """The questions without an answer, in the order in which they were asked."""
        return [question for question in self.interrupts.values() if question.response is None]

    def forget(self, ids: Iterable[str]) -> None:
        """Drop questions whose call is over."""
        for key in ids:
            self.interrupts.pop(key, None)
        self.version += 1

    def forget_call(self, tool_use_id: str) -> None:
        """Drop all questions of a call that is over, so that a later call of the same id is asked anew."""
        self.forget([question.id for question in self.of_call(tool_use_id)])

    def keep_calls(self, tool_use_ids: Collection[str]) -> None:
        """Drop the questions of all calls but these."""
        kept = {question.id for key in tool_use_ids for question in self.of_call(key)}
        self.forget([key for key in self.interrupts if key not in kept])

    def of_call(self, tool_use_id: str) -> list[Interrupt]:
        """All questions of a call, answered or not, in the order in which they were asked."""
        # The call's id may hold colons; what follows it, the name's UUID, does not.
        own = {f"v1:{where}:{tool_use_id}" for where in ("tool_call", "before_tool_call")}
        return [question for key, question in self.interrupts.items() if key.rpartition(":")[0] in own]

    def to_dict(self) -> dict[str, Any]:
        return {
            "interrupts": {key: question.to_dict() for key, question in self.interrupts.items()},
            "context": self.context,
            "activated": self.activated,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> InterruptState:
        """The state that `to_dict` gave.

        Raises:
            InvalidInputError: If `data` has another shape.
        """
        try:
            return cls(
                {key: Interrupt(**value) for key, value in data.get("interrupts", {}).items()},
                dict(data.get("context", {})),
                bool(data.get("activated", False)),
            )
        except (TypeError, AttributeError, ValueError) as error:
            raise InvalidInputError(f"interrupt_state is malformed: {error}") from error


def is_interrupt_response(prompt: object) -> bool:
    """Whether `prompt` is a non-empty list whose first block is an `interruptResponse`."""
    if not isinstance(prompt, list) or not prompt:
        return False
    first = cast("list[object]", prompt)[0]
    return isinstance(first, dict) and "interruptResponse" in first


def interrupt_responses(prompt: object) -> dict[str, Any]:
    """The answers of a prompt, by interrupt id.

    Raises:
        InvalidTypeError: If `prompt` is not a non-empty list of `interruptResponse` blocks.
        InvalidInputError: If an answer is None.
    """
    if not is_interrupt_response(prompt):
        raise InvalidTypeError(
            f"prompt_type={type(prompt).__name__} | must resume from interrupt with list of interruptResponse's: "
            "[question.answer(...)] for each in agent.interrupt_state.open()"
        )
    answers: dict[str, Any] = {}
    for block in cast("list[Any]", prompt):
        try:
            response = block["interruptResponse"]
            key, answer = response["interruptId"], copy_json(response["response"], "response")
            if not isinstance(key, str):
                raise TypeError(f"interruptId is {type(key).__name__}")
        except (KeyError, TypeError) as error:
            raise InvalidTypeError(
                f"{block!r} | must resume from interrupt with list of interruptResponse's: interruptId and response"
            ) from error
        if answer is None:
            raise InvalidInputError(f"the answer to {key!r} is None, which is no answer: say False, or an empty text")
        answers[key] = answer
    return answers
