"""What a detached run still has to do, as its row keeps it: so that another worker can go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from antiphon.errors import CorruptStoreError, InvalidInputError
from antiphon.runner.inputs import ReadInput, Resume, TurnInput, read_input

INPUTS = "task_inputs"
PROGRESS = "task"
"""Two keys of a row's data: what never changes lies apart, so that a store keeps it once."""


@dataclass(slots=True)
class Plan:
    """The inputs of a detached run, one for each turn, and how far it has come.

    Attributes:
        inputs: All of them.
        done: How many turns have ended.
        begun: Whether the state holds something of the turn that comes next: its input must not be given again.
    """

    inputs: Sequence[ReadInput]
    done: int = 0
    begun: bool = False

    @property
    def unfinished(self) -> bool:
        """Whether a turn is left."""
        return self.done < len(self.inputs)

    def end_turn(self) -> None:
        """The turn under way has ended."""
        self.done, self.begun = self.done + 1, False

    async def left(self) -> AsyncIterator[object]:
        """What the turns that are left begin with. It reads on from `done`, which whoever runs the turns moves."""
        while self.unfinished:
            yield ReadInput([], Resume()) if self.begun else self.inputs[self.done]

    def to_data(self) -> dict[str, Any]:
        """What a row's data keeps of it; JSON and bytes."""
        return {
            INPUTS: [{"messages": one.messages, "resume": _resume_data(one.resume)} for one in self.inputs],
            PROGRESS: {"done": self.done, "begun": self.begun},
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any], what: str) -> Plan:
        """The plan that a row's data keeps.

        Raises:
            CorruptStoreError: If there is none, or it is malformed.
        """
        try:
            entries = cast("list[dict[str, Any]]", data[INPUTS])
            inputs = [read_input(TurnInput(entry["messages"] or None, entry["resume"])) for entry in entries]
            progress = data[PROGRESS]
            done = progress["done"]
            if type(done) is not int or not 0 <= done < len(inputs):
                raise ValueError(f"done is {done!r}, of {len(inputs)} turns")
            return cls(inputs, done, bool(progress["begun"]))
        except (KeyError, TypeError, ValueError, InvalidInputError) as error:
            raise CorruptStoreError(f"{what} does not tell what is left to do: {error!r}") from error


def _resume_data(resume: Resume) -> dict[str, Any] | None:
    """Answers in the JSON form that `read_resume` takes."""
    if not resume:
        return None
    respond: list[dict[str, Any]] = []
    for result in resume.respond:
        entry = {"toolUseId": result.tool_use_id, "output": result.output}
        respond.append(entry if result.name is None else {**entry, "name": result.name})
    restart: list[dict[str, Any]] = []
    for again in resume.restart:
        call: dict[str, Any] = {"toolUseId": again.tool_use_id}
        if again.name is not None:
            call["name"] = again.name
        if again.check_input:
            call["input"] = again.input
        restart.append({"toolUse": call, "answer": again.answer})
    data: dict[str, Any] = {"respond": respond, "restart": restart}
    return data if resume.answers is None else {**data, "answers": dict(resume.answers)}
