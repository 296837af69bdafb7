"""An agent of Strands Agents that is saved with each message, into local files (`strands-agents`)."""

from __future__ import annotations

import logging
import tempfile
import warnings
from typing import Any

from strands import Agent
from strands.models.model import Model
from strands.session import SnapshotSessionManager
from strands.storage import LocalFileStorage

from benchmarks.child import Numbers, main
from benchmarks.stall import MESSAGES, QUICK_MESSAGES, history, stalls


class SilentModel(Model):
    """Is there, and never asked."""

    def update_config(self, **config: Any) -> None:
        pass

    def get_config(self) -> dict[str, Any]:
        return {}

    async def structured_output(self, *_: Any, **__: Any) -> Any:
        yield {}

    async def stream(self, *_: Any, **__: Any) -> Any:
        yield {}


def agent(saved_by: SnapshotSessionManager | None) -> Any:
    """An agent that is saved by this, and restored when it was there before."""
    return Agent(model=SilentModel(), session_manager=saved_by, agent_id="agent", callback_handler=None)


async def stall(*, quick: bool) -> Numbers:
    with tempfile.TemporaryDirectory() as folder:

        def manager() -> SnapshotSessionManager:
            return SnapshotSessionManager("talk", storage=LocalFileStorage(folder))

        saved_by = manager()
        yesterday = agent(saved_by)
        yesterday.messages.extend(history(QUICK_MESSAGES if quick else MESSAGES))
        await saved_by.save_snapshot(yesterday, is_latest=True)
        saved_by = manager()
        today = agent(saved_by)
        assert today.messages

        async def save() -> None:
            today.messages.append({"role": "user", "content": [{"text": "a few words more"}]})
            await saved_by.save_snapshot(today, is_latest=True)

        return await stalls(save, quick=quick)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.filterwarnings("ignore")
    main({"stall": stall})
