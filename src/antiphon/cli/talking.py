"""`antiphon talk`: a talk with a model, from a sound file into another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from antiphon.agent.live import BidiAgent
from antiphon.cli.chatting import SessionChoice, SystemPrompt, Tools
from antiphon.cli.options import AnyStoreUrl, AsJson, Tenant, opened
from antiphon.cli.screen import Screen, plain
from antiphon.cli.turns import lines_of
from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import Messages
from antiphon.hooks.events import MessageAddedEvent
from antiphon.ids import new_uuid7
from antiphon.io.wav import WavIO
from antiphon.io.wav_output import WavOutput
from antiphon.models.embedded.live import EmbeddedBidiModel
from antiphon.models.names import live_model
from antiphon.runner.runner import Runner
from antiphon.testing.clock import VirtualClock

_LOOK_S = 0.1


def talk(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="WAV", help="What the listener hears.")],
    input: Annotated[
        list[Path] | None, typer.Option("--input", "-i", metavar="WAV", help="What the user says; may be repeated.")
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option(
            "--text", "-t", metavar="TEXT", help="Type this instead of speaking; may be repeated. Needs no extra."
        ),
    ] = None,
    store: AnyStoreUrl = "memory:",
    tenant: Tenant = None,
    session: SessionChoice = None,
    tools: Tools = None,
    system: SystemPrompt = None,
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="NAME", help="Who talks: embedded (no key), or openai:<id>, google:<id>, bedrock:<id>."
        ),
    ] = "embedded",
    quiet: Annotated[
        float, typer.Option("--quiet", min=0.2, help="Hang up after so many seconds in which nobody says anything.")
    ] = 2.0,
    fast: Annotated[bool, typer.Option("--fast", help="With --text: do not take as long as it sounds.")] = False,
    as_json: AsJson = False,
) -> None:
    """Talk with a model, by itself the embedded one, by voice from files (extra: voice) or typed, as long as it sounds."""
    screen = Screen(as_json=as_json)
    if bool(input) == bool(texts):
        raise typer.BadParameter("give --input or --text")
    if fast and not texts:
        raise typer.BadParameter("--fast is for --text: ears take as long as there is to hear")
    if fast and model != "embedded":
        raise typer.BadParameter("--fast is for the embedded model: a provider takes the time it takes")
    session_id = session or new_uuid7()
    if store == "memory:":
        screen.say("nothing of this is kept: give --store to keep it")
    clock: Clock = VirtualClock(start=SYSTEM_CLOCK.utc()) if fast else SYSTEM_CLOCK
    files = WavIO(list(input or []), output, clock=clock, after="hang_up", quiet_s=quiet)

    def make() -> BidiAgent:
        embedded = model == "embedded"
        talking = EmbeddedBidiModel(voice=not texts, clock=clock) if embedded else live_model(model)
        return BidiAgent(talking, tools=list(tools or []), system_prompt=system, clock=clock)

    with opened(store, tenant, new=True) as place:
        runner = Runner(make, store=place, clock=clock)
        said = asyncio.run(_call(runner, session_id, screen, files, texts or [], quiet, clock))
    heard = files.output()
    if as_json:
        told = [line.facts() for line in lines_of(said)]
        screen.data(
            {"session_id": session_id, "output": str(output), "seconds": round(heard.played_ms / 1000, 3), "turn": told}
        )
    else:
        screen.say(f"session {plain(session_id)}; {heard.played_ms / 1000:.1f} s of sound in {output}")


async def _call(
    runner: Runner, session_id: str, screen: Screen, files: WavIO, texts: Sequence[str], quiet: float, clock: Clock
) -> Messages:
    """Talk, and return what was said."""

    def told(event: MessageAddedEvent[BidiAgent]) -> None:
        screen.show(*(line.drawn(short=False) for line in lines_of([event.message])))

    heard = files.output()
    async with runner.connect(session_id=session_id) as agent:
        before = len(agent.messages)
        if not screen.as_json:
            agent.add_hook(told, MessageAddedEvent)
        source = _typed(agent, heard, texts, quiet, clock) if texts else files.input()
        await agent.run(inputs=[source], outputs=[heard])
    return agent.messages[before:]


async def _typed(
    agent: BidiAgent, heard: WavOutput, texts: Sequence[str], quiet: float, clock: Clock
) -> AsyncIterator[str]:
    """The lines, each when it has been quiet after the one before; then the end of the talk."""
    for text in texts:
        yield text
        said = clock.now()
        while (since := heard.quiet_since()) is None or clock.now() - max(since, said) < quiet:
            await clock.sleep(_LOOK_S)
    agent.cancel()
