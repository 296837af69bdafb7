"""A live agent that is saved with each message, into local files."""

from __future__ import annotations

import tempfile
from typing import cast

from antiphon import BidiAgent, SnapshotSessionManager
from antiphon.content import Messages
from antiphon.storage import LocalFileStorage
from benchmarks.child import Numbers, main
from benchmarks.stall import MESSAGES, QUICK_MESSAGES, history, stalls
from benchmarks.subjects.antiphon_live import SilentModel


async def stall(*, quick: bool) -> Numbers:
    with tempfile.TemporaryDirectory() as folder:

        def agent(messages: Messages | None) -> BidiAgent:
            manager = SnapshotSessionManager("talk", storage=LocalFileStorage(folder), save_latest_on="message")
            return BidiAgent(SilentModel(), messages=messages, session_manager=manager)

        yesterday = agent(cast("Messages", history(QUICK_MESSAGES if quick else MESSAGES)))
        async with yesterday:
            await yesterday.send("good night")
        today = agent(None)
        async with today:

            async def save() -> None:
                await today.send("a few words more")  # returns when they are saved

            return await stalls(save, quick=quick)


if __name__ == "__main__":
    main({"stall": stall})
