"""The journal: what is open beside the last snapshot.

It is small, rewritten in place, and read once, by the process that goes on after a crash: calls that were started, people
who were asked, words heard so far. Every open line has a number that grows for the life of a session. A snapshot says how
many lines were settled when it was taken (its *mark*), so that a line is never restored twice, whichever of the two files
was written last.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, cast

from antiphon.content import Message, Messages, ToolResult, ToolUse, error_result
from antiphon.errors import SnapshotException
from antiphon.interrupts import Interrupt

RESTART_TEXT = "interrupted by a restart"


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A tool call without a result yet.

    Attributes:
        tool_use: The model's call.
        started: Whether the tool may have begun to work. Written before it does.
        repeatable: Whether it may run again.
        question: What it waits for, when it waits for a person.
        result: What it came to, when others of its group are not done yet.
        answered: Its other questions, with the answers that were given.
    """

    tool_use: ToolUse
    started: bool = True
    repeatable: bool = False
    question: Interrupt | None = None
    result: ToolResult | None = None
    answered: tuple[Interrupt, ...] = ()


@dataclass(frozen=True, slots=True)
class Journal:
    """What is open.

    Attributes:
        mark: Lines settled so far in the life of the session; the number of the first of `lines`.
        lines: Messages as they would be committed if the process ended now, in order: words heard, words said.
            An entry with empty content stands for a line of which nothing is known yet. An `Agent`'s open turn is a
            line too: the model's message with its `toolUse` blocks. What was said while it was open comes after it.
        calls: Calls whose results are not in the history yet, in the order in which they were made.
    """

    mark: int = 0
    lines: tuple[Message, ...] = ()
    calls: tuple[OpenCall, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing is open."""
        return not self.lines and not self.calls

    @property
    def turn(self) -> tuple[Message, ...]:
        """The first line with calls and those after it, which are committed together; empty where there is none."""
        at = next((at for at, line in enumerate(self.lines) if tool_uses(line)), len(self.lines))
        return self.lines[at:]

    def settled(self, mark: int) -> Journal:
        """This journal without the lines that a snapshot with `mark` already has."""
        done = max(0, min(mark - self.mark, len(self.lines)))
        return replace(self, mark=max(self.mark, mark), lines=self.lines[done:])

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data (bytes as they are: encode with `antiphon.jsonable`)."""
        return {
            "mark": self.mark,
            "lines": list(self.lines),
            "calls": [
                {
                    "tool_use": call.tool_use,
                    "started": call.started,
                    "repeatable": call.repeatable,
                    "question": call.question.to_dict() if call.question else None,
                    "result": call.result,
                    "answered": [question.to_dict() for question in call.answered],
                }
                for call in self.calls
            ],
        }

    @classmethod
    def from_dict(cls, data: object) -> Journal:
        """The journal that `to_dict` gave.

        Raises:
            SnapshotException: If `data` has another shape.
        """
        try:
            entry = cast("dict[str, Any]", data)
            mark = entry["mark"]
            if type(mark) is not int or mark < 0:
                raise ValueError(f"mark is {mark!r}, not a count")
            lines = tuple(_checked_line(line) for line in entry["lines"])
            return cls(mark, lines, tuple(_checked_call(call) for call in entry["calls"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SnapshotException(f"journal is malformed: {error!r}") from error


def _checked_line(line: Any) -> Message:
    if line["role"] not in {"user", "assistant"} or not isinstance(line["content"], list):
        raise ValueError(f"a line is {line!r}, not a message")
    for block in line["content"]:
        if not isinstance(block, dict):
            raise TypeError(f"a block is {block!r}, not an object")
        if "toolUse" in block:
            _checked_use(cast("dict[str, Any]", block)["toolUse"])
    return cast("Message", line)


def _checked_use(tool_use: Any) -> ToolUse:
    if not isinstance(tool_use["toolUseId"], str) or not isinstance(tool_use["name"], str):
        raise TypeError(f"a call is {tool_use!r}, without an id or a name")
    return ToolUse(toolUseId=tool_use["toolUseId"], name=tool_use["name"], input=tool_use["input"])


def _checked_call(call: Any) -> OpenCall:
    result = call.get("result")
    if result is not None and not isinstance(result["content"], list):
        raise TypeError(f"a result is {result!r}, without content")
    return OpenCall(
        _checked_use(call["tool_use"]),
        bool(call["started"]),
        bool(call["repeatable"]),
        Interrupt(**call["question"]) if call.get("question") else None,
        result,
        tuple(Interrupt(**question) for question in call.get("answered", ())),
    )


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a journal comes to after a crash.

    Attributes:
        messages: To be appended to the restored history, in order. One may be an `Agent`'s open turn, whose calls are then
            in `again`, `waiting` or `done`; those after it wait until it is over.
        again: Calls that may run again (`repeatable`, or not started yet).
        waiting: Calls whose question waits again.
        done: Results of the open turn that are known already.
        mark: The number of the next line.
    """

    messages: tuple[Message, ...]
    again: tuple[OpenCall, ...]
    waiting: tuple[OpenCall, ...]
    done: tuple[ToolResult, ...]
    mark: int


def call_ids(messages: Messages) -> set[str]:
    """The ids of all tool calls in a history."""
    return {tool_use["toolUseId"] for message in messages for tool_use in tool_uses(message)}


def tool_uses(message: Message) -> list[ToolUse]:
    """The tool calls of a message."""
    return [block["toolUse"] for block in message["content"] if "toolUse" in block]


def recover(journal: Journal, messages: Messages) -> Recovery:
    """What is to be done about a journal, given the history it stands beside.

    Heard and said lines are appended as they are. A started call becomes a pair with the error result "interrupted by a
    restart", unless its tool is repeatable; a call that waits for a person waits again; a result that was known is kept.
    Calls whose result is already in the history are settled.

    >>> call = OpenCall({"toolUseId": "t1", "name": "book", "input": {}})
    >>> [message["role"] for message in recover(Journal(calls=(call,)), []).messages]
    ['assistant', 'user']
    """
    known = call_ids(messages)
    calls = [call for call in journal.calls if call.tool_use["toolUseId"] not in known]
    again = tuple(call for call in calls if _runs_again(call))
    waiting = tuple(call for call in calls if call.question is not None and call.result is None)
    results = {
        call.tool_use["toolUseId"]: call.result or error_result(call.tool_use["toolUseId"], RESTART_TEXT)
        for call in calls
        if call not in again and call not in waiting
    }
    appended: list[Message] = []
    done: list[ToolResult] = []
    for line in journal.lines:
        ids = [tool_use["toolUseId"] for tool_use in tool_uses(line)]
        if not line["content"] or known.intersection(ids):
            continue
        known.update(ids)
        appended.append(copy.deepcopy(line))
        if not ids:
            continue
        if any(call.tool_use["toolUseId"] in ids for call in again + waiting):
            done += [results.pop(key) for key in ids if key in results]
        else:
            known_results = [results[key] if key in results else error_result(key, RESTART_TEXT) for key in ids]
            appended.append(result_message(known_results))
            results = {key: result for key, result in results.items() if key not in ids}
    for call in calls:
        if call.tool_use["toolUseId"] in results:
            appended += pair(call.tool_use, results[call.tool_use["toolUseId"]])
    return Recovery(tuple(appended), again, waiting, tuple(done), journal.mark + len(journal.lines))


def _runs_again(call: OpenCall) -> bool:
    return call.result is None and call.question is None and (call.repeatable or not call.started)


def result_message(results: list[ToolResult]) -> Message:
    """The message in which results enter a history."""
    return {"role": "user", "content": [{"toolResult": copy.deepcopy(result)} for result in results]}


def pair(tool_use: ToolUse, result: ToolResult) -> list[Message]:
    """A call and its result, as the two messages in which they enter a history."""
    return [{"role": "assistant", "content": [{"toolUse": copy.deepcopy(tool_use)}]}, result_message([result])]
