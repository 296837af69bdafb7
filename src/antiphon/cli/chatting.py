"""`antiphon chat`: a typed conversation with a model, each turn a snapshot."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from antiphon.agent.turns import Agent
from antiphon.cli.exits import ExitCode, code_of_status
from antiphon.cli.options import AnyStoreUrl, AsJson, Tenant, opened
from antiphon.cli.screen import Screen, plain
from antiphon.cli.turns import lines_of
from antiphon.content import text_of
from antiphon.ids import new_uuid7
from antiphon.interrupts import Interrupt
from antiphon.models.names import turn_model
from antiphon.runner.outputs import ModelChunk, RunOutput
from antiphon.runner.replaying import output_of_row
from antiphon.runner.runner import Runner
from antiphon.store.line_store import LineStore

_AGENT = "default"
_LEAVING = frozenset({"/quit", "/exit"})

SessionChoice = Annotated[
    str | None,
    typer.Option(
        "--session", "-s", metavar="SESSION", help="Go on with this session, or begin it; else a new one begins."
    ),
]
Tools = Annotated[
    list[str] | None,
    typer.Option("--tool", metavar="FILE", help="Python file or module with tools, which is run; may be repeated."),
]
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Who answers: embedded (no key), or openai:<id>, anthropic:<id>, google:<id>, bedrock:<id>, llamacpp:<file>.",
    ),
]
SystemPrompt = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="The system prompt.")]


def chat(
    store: AnyStoreUrl = "memory:",
    tenant: Tenant = None,
    session: SessionChoice = None,
    snapshot: Annotated[
        str | None,
        typer.Option("--snapshot", metavar="ID", help="Go on from this snapshot: a branch, if others follow it."),
    ] = None,
    messages: Annotated[
        list[str] | None,
        typer.Option("--message", "-m", metavar="TEXT", help="Say this and leave; may be repeated, a turn for each."),
    ] = None,
    tools: Tools = None,
    system: SystemPrompt = None,
    model: ModelName = "embedded",
    as_json: AsJson = False,
) -> None:
    """Chat with a model, by itself the embedded one. Without --message, lines are read until /quit or the end.

    Where a question of a tool is open, from an earlier process too, a line is the answer to the first one.
    """
    screen = Screen(as_json=as_json)
    answering = turn_model(model)
    if store == "memory:":
        screen.say("nothing of this is kept: give --store to keep it")
    with opened(store, tenant, new=True) as place:
        runner = Runner(lambda: Agent(answering, tools=list(tools or []), system_prompt=system), store=place)
        asked = _open_questions(place, session, snapshot)
        talk = _Chat(runner, screen, session if session or snapshot else new_uuid7(), snapshot, asked)
        code = talk.say_all(messages) if messages else talk.read_all()
    if code:
        raise typer.Exit(code)


def _open_questions(place: LineStore, session_id: str | None, snapshot_id: str | None) -> Sequence[Interrupt]:
    """What waits for an answer where the chat goes on."""
    if snapshot_id is not None:
        row = place.sync.get_snapshot(snapshot_id)
    elif session_id is not None:
        row = place.sync.get_latest_snapshot(session_id, agent_id=_AGENT)
    else:
        return ()
    return () if row is None or not row.terminal else output_of_row(row).interrupts


@dataclass(slots=True)
class _Chat:
    """A conversation that goes on.

    Attributes:
        runner: Takes the turns.
        screen: Shows them.
        session_id: The session, once it is known.
        snapshot_id: The snapshot that the first turn goes on from; None: the session's newest.
        asked: Questions that wait for the person.
    """

    runner: Runner
    screen: Screen
    session_id: str | None
    snapshot_id: str | None
    asked: Sequence[Interrupt] = ()

    def say_all(self, messages: Sequence[str]) -> int:
        """Take a turn for each message; the first failure ends it."""
        self._ask()
        for message in messages:
            if code := self.turn(message):
                return code
        return ExitCode.OK

    def read_all(self) -> int:
        """Take a turn for each line of standard input. A failed turn ends what a script says, not what a person does."""
        person = sys.stdin.isatty()
        self._ask()
        while True:
            if person:
                self.screen.say("> ", end="")
            line = sys.stdin.readline()
            if not line or line.strip() in _LEAVING:
                return ExitCode.OK
            if line.strip() and (code := self.turn(line.strip())) and not person:
                return code

    def turn(self, text: str) -> int:
        """Say something, or answer the first question that is open, and show what comes of it."""
        answers = [question.answer(text) for question in self.asked[:1]]
        output = asyncio.run(self._turn(None if answers else text, answers))
        # From here on by session: should somebody else move it on between two turns, this goes on from there.
        self.session_id, self.snapshot_id, self.asked = output.session_id, None, output.interrupts
        if self.screen.as_json:
            self.screen.data(output.to_dict())
        elif output.error is not None:
            self.screen.say(plain(str(output)), "red")
        self._ask()
        if not self.screen.as_json:
            told = "nothing saved" if output.snapshot_id is None else f"snapshot {output.snapshot_id}"
            self.screen.say(f"session {plain(output.session_id)}, {told}")
        return ExitCode.OK if output.error is None else code_of_status(output.error.status)

    def _ask(self) -> None:
        """Show the question that the next line answers."""
        for question in () if self.screen.as_json else self.asked[:1]:
            self.screen.show(plain(f"{question.name}: {question.reason}"))

    async def _turn(self, text: str | None, answers: list[dict[str, Any]]) -> RunOutput:
        output: RunOutput | None = None
        session_id = None if self.snapshot_id else self.session_id
        stream = self.runner.stream(text, session_id=session_id, snapshot_id=self.snapshot_id, resume=answers or None)
        said = False
        async with aclosing(stream) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, RunOutput):
                    output = chunk
                elif isinstance(chunk, ModelChunk) and not self.screen.as_json:
                    said = self._show(chunk, said=said)
        if said:
            self.screen.piece("\n")
        assert output is not None  # noqa: S101 - a stream ends with it, or raises
        return output

    def _show(self, chunk: ModelChunk, *, said: bool) -> bool:
        """Show a piece of an answer. Whether a line is open."""
        text = text_of({"role": chunk.role, "content": chunk.content})
        if chunk.role == "assistant" and text:
            self.screen.piece(("\n" if said and chunk.replaces else "") + text)
            return True
        for line in lines_of([{"role": chunk.role, "content": chunk.content}]):
            if line.who in {"call", "result"}:
                self.screen.say(line.drawn().plain)
        return said
