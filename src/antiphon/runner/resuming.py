"""Whether answers fit the turn that waits for them, and what they make of it. Pure."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from antiphon.agent.open_turn import OpenTurn
from antiphon.content import Messages, ToolResult, ToolUse
from antiphon.conversation.journal import call_ids
from antiphon.errors import InvalidInputError, ResumeInputError
from antiphon.interrupts import Interrupt, InterruptState
from antiphon.jsonable import same_json
from antiphon.runner.inputs import Resume


@dataclass(frozen=True, slots=True)
class Resumption:
    """What answers come to.

    Attributes:
        state: The agent's `interrupt_state` with them.
        answers: What the agent is to be asked with, when other questions stay open; None: with the new messages.
        waits: Whether nothing can run: some results were given, and all the other calls still wait.
    """

    state: dict[str, Any]
    answers: list[dict[str, Any]] | None = None
    waits: bool = False


def resumed(resume: Resume, state: InterruptState, history: Messages, *, has_messages: bool) -> Resumption:
    """What answers make of a turn that waits. Only the latest model message counts: nothing older can be answered.

    Args:
        resume: The answers.
        state: The agent's; it is left as it is.
        history: Its committed messages, to tell old calls from invented ones.
        has_messages: Whether new messages come with the answers.

    Raises:
        ResumeInputError: If a call or question is not the latest message's, does not wait, was changed, or is answered
            twice.
        InvalidInputError: If an answer is None, or messages come while other questions stay open.
    """
    turn = OpenTurn.from_context(deepcopy(state.context)) if state.activated else None
    check = _Check(turn, state, history)
    results: dict[str, ToolResult] = {}
    for entry in resume.respond:
        call = check.waiting(entry.tool_use_id, entry.name)
        results[call["toolUseId"]] = entry.result()
    answers: dict[str, Any] = {}
    for restart in resume.restart:
        call = check.waiting(restart.tool_use_id, restart.name)
        if restart.check_input and not same_json(restart.input, call["input"]):
            raise ResumeInputError(
                restart.tool_use_id, f"was sent back with modified inputs; the model asked for {call['input']!r}"
            )
        for question in check.questions(call):
            answers[question.id] = restart.answer
    for key, answer in (resume.answers or {}).items():
        check.question(key)
        answers[key] = answer
    for key, answer in answers.items():
        if answer is None:
            raise InvalidInputError(f"the answer to {key!r} is None, which is no answer: say False, or an empty text")
    return _carry_out(state, turn, results, answers, has_messages=has_messages)


def _carry_out(
    state: InterruptState,
    turn: OpenTurn | None,
    results: dict[str, ToolResult],
    answers: dict[str, Any],
    *,
    has_messages: bool,
) -> Resumption:
    assert turn is not None  # noqa: S101 - `_Check` refuses answers where nothing waits
    after = InterruptState.from_dict(deepcopy(state.to_dict()))
    for key in results:
        after.forget_call(key)
    turn.results |= results
    complete = all(question.id in answers for question in after.open())
    if complete:
        for key, answer in answers.items():
            question = after.interrupts[key]
            after.interrupts[key] = Interrupt(question.id, question.name, question.reason, answer)
    elif has_messages:
        raise InvalidInputError(
            f"{len(after.open()) - len(answers)} questions stay open: a message can come with the answers to all of them"
        )
    after.activate(turn.context())
    if complete:
        return Resumption(after.to_dict())
    blocks = [after.interrupts[key].answer(answer) for key, answer in answers.items()]
    return Resumption(after.to_dict(), blocks or None, waits=not blocks)


class _Check:
    """Finds what answers name, each once."""

    def __init__(self, turn: OpenTurn | None, state: InterruptState, history: Messages) -> None:
        self._calls = {} if turn is None else {call["toolUseId"]: call for call in turn.calls()}
        self._results = {} if turn is None else turn.results
        self._state, self._history = state, history
        self._answered: set[str] = set()

    def waiting(self, tool_use_id: str, name: str | None) -> ToolUse:
        """The call that is named, and has not been answered yet."""
        call = self._calls.get(tool_use_id)
        if call is None or (name is not None and call["name"] != name):
            if call is None and tool_use_id in call_ids(self._history):
                raise ResumeInputError(tool_use_id, "is from an earlier turn: only the latest message's calls can wait")
            told = "" if name is None else f" under the name {name!r}"
            raise ResumeInputError(tool_use_id, f"is not found in session history{told}")
        if tool_use_id in self._results:
            raise ResumeInputError(tool_use_id, "has its result already, and waits for nothing")
        if not self._open(call):
            raise ResumeInputError(tool_use_id, "waits for nobody's answer")
        if tool_use_id in self._answered:
            raise ResumeInputError(tool_use_id, "is answered twice")
        self._answered.add(tool_use_id)
        return call

    def questions(self, call: ToolUse) -> list[Interrupt]:
        """What a call still asks."""
        return self._open(call)

    def question(self, key: str) -> None:
        """Refuse the id of a question that is not open, or whose call is answered as a whole."""
        question = self._state.interrupts.get(key)
        owner = next(
            (call["toolUseId"] for call in self._calls.values() if any(one.id == key for one in self._open(call))), None
        )
        if question is None or question.response is not None or owner is None:
            raise ResumeInputError(key, "is not found in session history as an open question")
        if owner in self._answered:
            raise ResumeInputError(owner, "is answered twice")

    def _open(self, call: ToolUse) -> list[Interrupt]:
        return [one for one in self._state.of_call(call["toolUseId"]) if one.response is None]
