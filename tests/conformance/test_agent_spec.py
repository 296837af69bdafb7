"""Genkit's specification of agents, as far as it is there: a file beside this repository, of which nothing is copied here.

`tests/runner` covers the same behaviour in our words.
"""

import asyncio
import re
from pathlib import Path

import pytest

from antiphon.errors import AntiphonError
from antiphon.runner import RunOutput, TurnInput
from tests.conformance.agents import Script, open_runner
from tests.conformance.mapping import Chunks, message_of, resume_of, state_of, told_output, told_row
from tests.conformance.matching import check_chunks, check_error, check_output, check_snapshot

SPEC = Path(__file__).parents[3] / "shared" / "specs" / "genkit-agent.yaml"

SEND = {
    *("type", "init", "inputs", "modelResponses", "streamChunks", "expectChunks", "expectOutput", "expectError"),
    *("captureSnapshotId", "captureState", "captureSessionId"),
}
STEPS = {
    "send": SEND,
    "getSnapshotData": {"type", "snapshotId", "sessionId", "expectSnapshot"},
    "waitUntilCompleted": {"type", "snapshotId", "expectSnapshot"},
    "abort": {"type", "snapshotId", "expectPreviousStatus"},
}


def cases():
    if not SPEC.exists():
        reason = f"the specification is not there: {SPEC.name} in the folder shared/specs beside the repository"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="absent")]
    yaml = pytest.importorskip("yaml")
    return [pytest.param(case, id=case["name"]) for case in yaml.safe_load(SPEC.read_text())["tests"]]


class Session:
    """One case: a runner with a fresh store, and what was captured so far."""

    def __init__(self, agent):
        self.script = Script()
        self.runner = open_runner(agent, self.script)
        self.captured = {}

    def filled(self, value):
        """With what was captured in place of `{{name}}`."""
        if isinstance(value, dict):
            return {key: self.filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        if not isinstance(value, str):
            return value
        whole = re.fullmatch(r"\{\{(\w+)\}\}", value)
        return (
            self.captured[whole[1]] if whole else re.sub(r"\{\{(\w+)\}\}", lambda found: self.captured[found[1]], value)
        )

    async def take(self, step):
        unknown = set(step) - STEPS[step["type"]]
        assert not unknown, f"the specification has something new: {unknown}"
        captured = {key: step[key] for key in step if key.startswith("capture")}
        step = {key: value if key.startswith("capture") else self.filled(value) for key, value in step.items()}
        match step["type"]:
            case "send":
                await self.send(step, captured)
            case "getSnapshotData" if "snapshotId" in step:
                check_snapshot(told_row(await self.runner.get_snapshot(step["snapshotId"])), step["expectSnapshot"])
            case "getSnapshotData":
                row = await self.runner.get_latest_snapshot(step["sessionId"])
                check_snapshot(told_row(row), step["expectSnapshot"])
            case "waitUntilCompleted":
                row = await self.runner.wait(step["snapshotId"])
                check_snapshot(told_row(row), step["expectSnapshot"])
            case "abort":
                previous = await self.runner.abort(step["snapshotId"])
                if "expectPreviousStatus" in step:
                    assert previous == step["expectPreviousStatus"]

    async def send(self, step, captured):
        self.script.load(step.get("modelResponses", []), step.get("streamChunks", []))
        chunks = Chunks(self.script.streams)
        try:
            output = await self.output(step["init"], step["inputs"], chunks)
        except AntiphonError as error:
            if "expectError" not in step:
                raise
            return check_error({"status": error.status, "message": wire_words(str(error))}, step["expectError"])
        assert "expectError" not in step
        told = told_output(output)
        if "expectChunks" in step:
            check_chunks(chunks.told, step["expectChunks"])
        check_output(told, step.get("expectOutput", {}))
        kept = {
            "captureSnapshotId": told.get("snapshotId"),
            "captureState": output.state,
            "captureSessionId": told["sessionId"],
        }
        self.captured |= {name: kept[what] for what, name in captured.items()}
        return None

    async def output(self, init, inputs, chunks):
        where = {"session_id": init.get("sessionId"), "snapshot_id": init.get("snapshotId")}
        where = {key: value for key, value in where.items() if value is not None}
        if "state" in init:
            where["state"] = state_of(init["state"])
        given = [
            TurnInput(
                [message_of(entry["message"])] if "message" in entry else None,
                resume_of(entry["resume"]) if "resume" in entry else None,
            )
            for entry in inputs
            if "message" in entry or "resume" in entry
        ]
        if any(entry.get("detach") for entry in inputs):
            task = await self.runner.detach(given, **where)
            row = await self.runner.get_snapshot(task.snapshot_id)
            return RunOutput(session_id=row.session_id, snapshot_id=row.snapshot_id, finish_reason="detached")
        told = [chunk async for chunk in self.runner.stream(given, **where)]
        for chunk in told[:-1]:
            chunks.add(chunk)
        return told[-1]


def wire_words(message):
    return message.replace("'session_id'", "'sessionId'").replace("'snapshot_id'", "'snapshotId'")


@pytest.mark.parametrize("case", cases())
async def test_a_runner_does_what_the_specification_says(case):
    session = Session(case["agent"])
    async with asyncio.timeout(20):
        for step in case["steps"]:
            await session.take(step)
