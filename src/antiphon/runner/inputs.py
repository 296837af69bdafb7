"""What a run is asked with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from antiphon.agent.prompts import AgentInput, prompt_messages
from antiphon.content import Messages, ToolResult
from antiphon.errors import InvalidInputError, InvalidTypeError
from antiphon.interrupts import interrupt_responses, is_interrupt_response
from antiphon.jsonable import copy_json
from antiphon.snapshot.checks import check_tool_result
from antiphon.tools.decorator import tool_result


@dataclass(frozen=True, slots=True)
class Respond:
    """A person gives a call's result: the tool does not run.

    Attributes:
        tool_use_id: The call.
        output: Its result, as a tool returns it: a text, a dict, or a whole `{"status": ..., "content": [...]}`.
        name: The tool's name; checked when it is given.
    """

    tool_use_id: str
    output: Any
    name: str | None = None

    def result(self) -> ToolResult:
        """The result as the history keeps it.

        Raises:
            InvalidInputError: If it cannot be kept.
        """
        result = tool_result(self.tool_use_id, copy_json(self.output, f"resume of {self.tool_use_id!r}"))
        check_tool_result(result, "resume")
        return result


@dataclass(frozen=True, slots=True)
class Restart:
    """A person lets a call go on: the tool runs again from its top, and gets the answer where it asked.

    Attributes:
        tool_use_id: The call.
        answer: Answers every question that the call still waits for; not None.
        name: The tool's name; checked when it is given.
        input: The call's input; checked when `check_input` says so. It cannot be changed.
        check_input: Whether `input` is given.
    """

    tool_use_id: str
    answer: Any = True
    name: str | None = None
    input: Any = None
    check_input: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """Answers to an interrupted turn: of both kinds, any number at once.

    Attributes:
        respond: Results that are given.
        restart: Calls that go on.
        answers: Answers to single questions, by the question's id: `{question.id: "yes"}`.
    """

    respond: Sequence[Respond] = ()
    restart: Sequence[Restart] = ()
    answers: Mapping[str, Any] | None = None

    def __bool__(self) -> bool:
        return bool(self.respond or self.restart or self.answers)


ResumeLike = Resume | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A `Resume`; its JSON form (`read_resume`); or what an agent takes: `[question.answer("yes"), ...]`."""


@dataclass(frozen=True, slots=True)
class TurnInput:
    """What one turn begins with.

    Attributes:
        message: A text, content blocks, or whole messages; None: go on with what is there.
        resume: Answers to the turn that waits.
    """

    message: AgentInput = None
    resume: ResumeLike | None = None


RunInput = AgentInput | TurnInput | Sequence[TurnInput] | AsyncIterator[Any]
"""One input, or several for as many turns: a list of `TurnInput`s, or an asynchronous iterator of inputs."""


@dataclass(frozen=True, slots=True)
class ReadInput:
    """An input, checked.

    Attributes:
        messages: New messages.
        resume: Answers; empty for none.
    """

    messages: Messages
    resume: Resume


def read_input(given: object, resume: object = None) -> ReadInput:
    """One input, checked.

    Args:
        given: A `TurnInput`, or what an agent may be asked with; answers to questions among them.
        resume: Answers that were given beside it.

    Raises:
        InvalidInputError: If it cannot be used, or there is nothing in it.
    """
    if isinstance(given, TurnInput):
        if given.resume is not None and resume is not None:
            raise InvalidInputError("answers were given twice: in the TurnInput, and as resume=")
        resume = given.resume if resume is None else resume
        given = given.message
    if is_interrupt_response(given):
        if resume is not None:
            raise InvalidInputError("answers were given twice: as the input, and as resume=")
        given, resume = None, given
    read = ReadInput(prompt_messages(given), read_resume(resume))
    for at, message in enumerate(read.messages):
        for block in message["content"]:
            if message["role"] == "user" and ("toolUse" in block or "toolResult" in block):
                raise InvalidInputError(f"input[{at}] holds a tool call or result: give results with resume=")
    return read


def read_inputs(given: object, resume: object = None) -> list[ReadInput]:
    """A run's inputs, when they are all there: one for each turn.

    Raises:
        InvalidInputError: If one cannot be used.
    """
    if isinstance(given, (list, tuple)) and given:
        entries = cast("Sequence[object]", given)
        if all(isinstance(entry, TurnInput) for entry in entries):
            first = read_input(entries[0], resume)
            return [first, *(read_input(entry) for entry in entries[1:])]
        if any(isinstance(entry, TurnInput) for entry in entries):
            raise InvalidInputError("the input mixes TurnInputs and others: give TurnInputs only, one for each turn")
    return [read_input(given, resume)]  # pyright: ignore[reportUnknownArgumentType]


def read_resume(given: object) -> Resume:
    """Answers in any of their forms; None is none.

    The JSON form is an object with lists `respond` and `restart`. An entry of `respond` is `{"toolUseId", "output",
    "name"?}`, or `{"toolResult": {"toolUseId", "status", "content"}}`. One of `restart` is `{"toolUse": {"toolUseId",
    "name", "input"}, "answer"?}`. `answers` is an object of answers by question id.

    Raises:
        InvalidInputError: If it is none of these.
    """
    if given is None:
        return Resume()
    if isinstance(given, Resume):
        return given
    if is_interrupt_response(given):
        return Resume(answers=interrupt_responses(given))
    if not isinstance(given, Mapping):
        raise InvalidTypeError(
            f"resume={given!r} is neither a Resume, nor an object, nor a list of interruptResponse's"
        )
    entry = cast("Mapping[str, Any]", given)
    unknown = set(entry) - {"respond", "restart", "answers"}
    if unknown or not entry:
        raise InvalidInputError(f"resume has the keys {sorted(entry)!r}; known are respond, restart and answers")
    try:
        answers = entry.get("answers")
        return Resume(
            [_read_respond(one) for one in entry.get("respond") or ()],
            [_read_restart(one) for one in entry.get("restart") or ()],
            None if answers is None else dict(answers),
        )
    except KeyError as error:
        raise InvalidInputError(f"resume is malformed: an entry lacks {error}") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise InvalidInputError(f"resume is malformed: {error}") from error


def _read_respond(given: Any) -> Respond:
    if isinstance(given, Respond):
        return given
    if "toolResult" in given:
        result = given["toolResult"]
        whole = {"status": result.get("status", "success"), "content": result["content"]}
        return Respond(_text(result["toolUseId"]), whole)
    name = given.get("name")
    return Respond(_text(given["toolUseId"]), given["output"], None if name is None else _text(name))


def _read_restart(given: Any) -> Restart:
    if isinstance(given, Restart):
        return given
    call = given["toolUse"]
    name = call.get("name")
    return Restart(
        _text(call["toolUseId"]),
        given.get("answer", True),
        None if name is None else _text(name),
        call.get("input"),
        check_input="input" in call,
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInputError(f"{value!r} is not a non-empty text")
    return value
