"""`antiphon tasks`: runs whose process is gone, or at work elsewhere."""

import asyncio
import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from antiphon import Agent, Runner
from antiphon.cli.entry import main
from antiphon.clock import SYSTEM_CLOCK
from antiphon.models import EmbeddedModel
from antiphon.runner import TurnInput
from antiphon.store import open_store
from antiphon.testing import VirtualClock
from tests.cli.conftest import KINDS

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


async def left_behind(url, start, session_id="ann"):
    """The id of a run of two turns whose process has ended in the first one, with a sign of life at `start`."""
    clock = VirtualClock(autojump=False, start=start)
    store = open_store(url)
    runner = Runner(lambda: Agent(EmbeddedModel(clock=clock, word_seconds=1)), store=store, clock=clock)
    task = await runner.detach([TurnInput("hello"), TurnInput("count to three")], session_id=session_id)
    await runner.aclose()
    store.close()
    return task.snapshot_id


@pytest.fixture(params=KINDS)
def url(request, make_url, monkeypatch):
    place = make_url(request.param)
    monkeypatch.setenv("ANTIPHON_STORE", place)
    return place


def as_json(capsys, *arguments, code=0):
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


async def listed(url):
    done = subprocess.run(
        [sys.executable, "-m", "antiphon.cli", "tasks", "list", "--json"],
        capture_output=True,
        env=dict(os.environ),
        timeout=50,
        check=True,
    )
    return json.loads(done.stdout)["tasks"]


async def test_a_run_whose_process_has_died_is_listed_as_expired(url):
    task_id = await left_behind(url, LONG_AGO)
    [task] = await listed(url)
    assert (task["snapshot_id"], task["status"], task["session_id"]) == (task_id, "expired", "ann")


@pytest.fixture
def make(url):
    """Leaves runs behind; the commands have loops of their own, so these tests are plain."""
    return lambda start=LONG_AGO: asyncio.run(left_behind(url, start))


def test_an_expired_run_is_adopted_and_finished(make, capsys):
    task_id = make()
    assert main(["tasks", "wait", task_id]) == 4
    assert "adopt" in capsys.readouterr().err
    row = as_json(capsys, "tasks", "adopt", task_id)
    assert (row["snapshot_id"], row["status"]) == (task_id, "completed")
    assert as_json(capsys, "tasks", "list")["tasks"] == []
    assert as_json(capsys, "tasks", "wait", task_id)["status"] == "completed"
    messages = as_json(capsys, "sessions", "show", task_id)["data"]["messages"]
    assert [message["content"][0]["text"] for message in messages] == [
        *("hello", "Hello! What can I do for you?", "count to three", "one, two, three.")
    ]
    assert main(["tasks", "adopt", task_id]) == 4


def test_an_expired_run_that_is_aborted_is_over(make, capsys):
    task_id = make()
    told = as_json(capsys, "tasks", "abort", task_id)
    assert told["before"] == "expired"
    assert told["task"]["status"] in {"aborted", "failed"}
    assert as_json(capsys, "tasks", "wait", task_id, code=1)["status"] == told["task"]["status"]


def test_an_expired_run_is_adopted_with_the_model_that_it_had(make, capsys):
    task_id = make()
    assert main(["tasks", "adopt", task_id, "--model", "bogus"]) == 2
    assert "names no provider: write one of anthropic:<model id>" in capsys.readouterr().err
    assert as_json(capsys, "tasks", "list")["tasks"][0]["status"] == "expired"  # it was not touched
    assert as_json(capsys, "tasks", "adopt", task_id, "--model", "embedded")["status"] == "completed"


def test_to_abort_what_has_ended_says_so(make, capsys):
    task_id = make()
    as_json(capsys, "tasks", "adopt", task_id)
    assert main(["tasks", "abort", task_id]) == 0
    assert f"{task_id} had ended before: completed\n" in capsys.readouterr().err


def test_a_run_at_work_is_neither_adopted_nor_waited_for_longer_than_asked(make, capsys):
    task_id = make(SYSTEM_CLOCK.utc())
    assert [task["status"] for task in as_json(capsys, "tasks", "list")["tasks"]] == ["pending"]
    assert main(["tasks", "adopt", task_id]) == 4
    assert main(["tasks", "wait", task_id, "--timeout", "0.05"]) == 1
    assert capsys.readouterr().err


def test_a_run_that_is_not_there_is_not_found(make, capsys):
    make()
    for name in ("wait", "abort", "adopt"):
        assert main(["tasks", name, "nope"]) == 3
