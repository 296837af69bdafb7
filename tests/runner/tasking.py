"""A process that works on runs in the background, or looks at them: `tasking.py URL SCHEMA ROLE [ID]`.

`detach` begins a run of five turns, says `in 3` in the middle of the third, goes on when a line comes, and says `over`.
`hang` begins so many runs, each in a session of its own, that never end, and says their ids.
"""

import asyncio
import logging
import sys

from antiphon import Agent, Runner
from antiphon.runner import TurnInput
from antiphon.store import open_store
from antiphon.testing import Answer, ScriptedModel

HEARTBEAT_S, EXPIRE_S = 0.5, 3.0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main(url: str, schema: str, role: str, snapshot_id: str) -> None:
    gate, reading = asyncio.Event(), []

    async def read() -> None:
        await asyncio.to_thread(sys.stdin.readline)
        gate.set()

    def hang(messages: list) -> Answer:
        return Answer(text="Never.", pause_after_words=0, until=asyncio.Event())

    def answer(messages: list) -> str | Answer:
        text = messages[-1]["content"][0]["text"]
        if text != "3" or role != "detach":
            return f"To {text}."
        say("in 3")
        reading.append(asyncio.get_running_loop().create_task(read()))
        return Answer(text=f"To {text}.", pause_after_words=0, until=gate)

    options = {"schema": schema} if schema else {}
    async with open_store(url, **options) as store:
        model = ScriptedModel([answer] * 5)
        runner = Runner(lambda: Agent(model), store=store, heartbeat=HEARTBEAT_S, expire_after=EXPIRE_S)
        match role:
            case "detach":
                task = await runner.detach([TurnInput(text) for text in "12345"], session_id="s")
                say(task.snapshot_id)
                await runner.aclose(drain=True)
                say("over")
            case "hang":
                hanging = Runner(lambda: Agent(ScriptedModel([hang])), store=store)
                for number in range(int(snapshot_id)):
                    say((await hanging.detach("x", session_id=f"s{number}")).snapshot_id)
                await hanging.aclose(drain=True)
                say("over")
            case "watch":
                say((await runner.task(snapshot_id).poll()).status)
                say((await runner.task(snapshot_id).wait()).status)
            case "abort":
                say(str(await runner.abort(snapshot_id)))
                say((await runner.task(snapshot_id).poll()).status)
            case "adopt":
                task = await runner.adopt(snapshot_id)
                say((await task.wait()).status)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(*sys.argv[1:4], sys.argv[4] if len(sys.argv) > 4 else ""))
