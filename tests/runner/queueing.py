"""A process that takes some turns on a session that others work on: `queueing.py URL SCHEMA NAME COUNT`."""

import asyncio
import sys

from antiphon import Agent, NullConversationManager, Runner
from antiphon.store import open_store
from antiphon.testing import ScriptedModel


async def main(url: str, schema: str, name: str, count: int) -> None:
    async with open_store(url, **({"schema": schema} if schema else {})) as store:

        def make() -> Agent:
            return Agent(ScriptedModel(["Yes."]), conversation_manager=NullConversationManager())

        runner = Runner(make, store=store, on_conflict="queue")
        for number in range(count):
            output = await runner.run(f"{name} {number}", session_id="shared")
            assert output.finish_reason == "stop", output


asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
