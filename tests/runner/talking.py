"""A process that goes on with a session: `talking.py URL typed|live|hang TEXT...`; says its history, or hangs."""

import asyncio
import json
import sys

from antiphon import Agent, BidiAgent, Runner
from antiphon.content import text_of
from antiphon.models import EmbeddedBidiModel, EmbeddedModel
from antiphon.store import open_store
from antiphon.testing import VirtualClock

EXPIRE_S = 2.0


async def say(agent: BidiAgent, *texts: str) -> None:
    """Say each text when the one before was answered."""
    for text in texts:
        await agent.send(text)
        async for event in agent.receive():
            if event.type == "bidi_response_stop":
                break


async def main(url: str, role: str, *texts: str) -> None:
    async with open_store(url) as store:
        if role == "typed":
            runner = Runner(lambda: Agent(EmbeddedModel()), store=store, heartbeat=0.5, expire_after=EXPIRE_S)
            for text in texts:
                await runner.run(text, session_id="s")
        else:
            clock = VirtualClock()
            runner = Runner(lambda: BidiAgent(EmbeddedBidiModel(voice=False, clock=clock), clock=clock), store=store)
            async with runner.connect(session_id="s") as agent:
                await say(agent, *texts)
                if role == "hang":
                    while len((await runner.get_latest_snapshot("s")).loaded().data["messages"]) < 2 * len(texts):
                        await clock.sleep(0.1)
                    sys.stdout.write("hangs\n")
                    sys.stdout.flush()
                    await asyncio.Event().wait()
        row = await runner.get_latest_snapshot("s")
    json.dump([text_of(message) for message in row.loaded().data["messages"]], sys.stdout)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
