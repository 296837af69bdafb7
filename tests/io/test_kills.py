"""Processes that are killed while they speak, or while a tool runs, and what the next process knows of it."""

import random
import signal
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.content import text_of
from antiphon.session.snapshots import SnapshotSessionManager
from antiphon.storage.file import LocalFileStorage
from antiphon.testing.scripted import ScriptedBidiModel
from tests.io.answering import PROMPT, answer_words, manager

KILLS = 20
BEHIND_MS = 250


def milliseconds(path: Path) -> float:
    with wave.open(str(path)) as reader:
        return reader.getnframes() * 1000 / reader.getframerate()


def words_within(ms: float) -> list[str]:
    return [word.text for word in answer_words() if word.end_ms <= ms]


@pytest.mark.realtime
@pytest.mark.timeout(60)
def test_after_a_kill_the_history_holds_what_was_heard_and_is_at_most_250_ms_behind(tmp_path):
    whole = answer_words()[-1].end_ms
    chance = random.Random(20261130)
    delays = [f"{chance.uniform(0.05, whole / 1000 - 0.3):.3f}" for _ in range(KILLS)]
    program = Path(__file__).parent / "answering.py"
    subprocess.run([sys.executable, str(program), str(tmp_path), *delays], check=True, timeout=50)
    cut: list[bool] = []
    for number in range(KILLS):
        played = milliseconds(tmp_path / str(number) / "heard.wav")
        agent = BidiAgent(ScriptedBidiModel(), session_manager=manager(tmp_path / str(number)))
        question, *answers = agent.messages
        assert text_of(question) == PROMPT
        heard = [word for message in answers for word in text_of(message).split()]
        assert heard == words_within(played)[: len(heard)]
        assert len(heard) >= len(words_within(played - BEHIND_MS))
        cut.append(len(heard) < len(answer_words()))
        assert all(message["metadata"].get("interrupted", False) == cut[-1] for message in answers)
    assert sum(cut) > KILLS / 2  # else the machine was so slow that nothing was shown


BOOKING = """
import asyncio, os, signal, sys
from antiphon.agent.live import BidiAgent
from antiphon.models.embedded.script import CallTools, Until
from antiphon.session.snapshots import SnapshotSessionManager
from antiphon.storage.file import LocalFileStorage
from antiphon.testing.scripted import ScriptedBidiModel
from antiphon.tools.decorator import tool

folder, repeatable = sys.argv[1], sys.argv[2] == "repeatable"

@tool(repeatable=repeatable)
def book(guests: int) -> str:
    \"\"\"Book a table.\"\"\"
    with open(f"{folder}/bookings", "a") as file:
        print(guests, file=file)
    if os.path.getsize(f"{folder}/bookings") == len("2\\n"):
        os.kill(os.getpid(), signal.SIGKILL)
    return "booked"

async def main():
    manager = SnapshotSessionManager("booking", storage=LocalFileStorage(folder))
    model = ScriptedBidiModel([Until("text"), CallTools([("book", {"guests": 2})])])
    async with BidiAgent(model, tools=[book], session_manager=manager) as agent:
        if not agent.messages:
            await agent.send("a table for two")
        async for event in agent.receive():
            if event.type == "tool_result":
                break

asyncio.run(main())
"""


def book(folder: Path, kind: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", BOOKING, str(folder), kind], timeout=30, check=False)


def restored(folder: Path) -> BidiAgent:
    model = ScriptedBidiModel()
    return BidiAgent(model, session_manager=SnapshotSessionManager("booking", storage=LocalFileStorage(folder)))


async def test_a_tool_that_was_killed_after_its_write_is_known_to_have_begun_and_does_not_run_twice(tmp_path):
    assert book(tmp_path, "once").returncode == -signal.SIGKILL
    for _ in range(2):
        agent = restored(tmp_path)
        question, call, result = agent.messages
        (use,) = [block["toolUse"] for block in call["content"]]
        (outcome,) = [block["toolResult"] for block in result["content"]]
        assert text_of(question) == "a table for two"
        assert (use["name"], use["input"]) == ("book", {"guests": 2})
        assert outcome["toolUseId"] == use["toolUseId"]
        assert outcome["status"] == "error"
        assert outcome["content"] == [{"text": "interrupted by a restart"}]
        async with agent:  # the next call begins, and ends
            assert agent.model.starts[-1].messages == [
                {"role": message["role"], "content": message["content"]} for message in agent.messages
            ]
        assert (tmp_path / "bookings").read_text() == "2\n"


async def test_a_repeatable_tool_that_was_killed_runs_again(tmp_path):
    assert book(tmp_path, "repeatable").returncode == -signal.SIGKILL
    assert book(tmp_path, "repeatable").returncode == 0
    agent = restored(tmp_path)
    (outcome,) = [block["toolResult"] for block in agent.messages[-1]["content"]]
    assert outcome["status"] == "success"
    assert (tmp_path / "bookings").read_text() == "2\n2\n"
