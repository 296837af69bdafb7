"""`antiphon chat`: each turn becomes a snapshot, whichever process takes it."""

import json
import os
import subprocess
import sys

import pytest

from antiphon import Agent, Runner, ToolContext, tool
from antiphon.cli.chatting import _Chat
from antiphon.cli.entry import main
from antiphon.cli.screen import Screen
from antiphon.store import InMemorySessionStore
from antiphon.testing import Answer, ScriptedModel
from tests.cli.conftest import KINDS

TOOLS = '''
from antiphon import ToolContext, tool

@tool
def pay(amount: int, context: ToolContext) -> str:
    """Pay an amount of money."""
    if context.interrupt("sure", reason=f"Pay {amount}?") != "yes":
        return "Nothing was paid."
    return f"{amount} was paid."
'''


@pytest.fixture(params=KINDS)
def url(request, make_url, monkeypatch):
    place = make_url(request.param)
    monkeypatch.setenv("ANTIPHON_STORE", place)
    return place


def as_json(capsys, *arguments, code=0):
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_message_is_a_turn_and_the_next_process_goes_on(url, capsys):
    assert main(["chat", "-s", "ann", "-m", "hello", "-m", "count to three"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "Hello! What can I do for you?\none, two, three.\n"
    assert "session ann" in shown.err
    done = subprocess.run(
        [sys.executable, "-m", "antiphon.cli", "chat", "-s", "ann", "-m", "thanks", "--json"],
        capture_output=True,
        env=dict(os.environ),
        timeout=50,
        check=True,
    )
    assert json.loads(done.stdout)["message"]["content"] == [{"text": "You are welcome."}]
    rows = as_json(capsys, "sessions", "tree", "ann")["rows"]
    assert [row["messages"] for row in rows] == [2, 4, 6]
    assert [row["children"] for row in rows] == [[rows[1]["snapshot_id"]], [rows[2]["snapshot_id"]], []]
    assert {row["mode"] for row in rows} == {"text"}


def test_going_on_from_an_older_snapshot_begins_a_branch(url, capsys):
    first = as_json(capsys, "chat", "-s", "ann", "-m", "hello")["snapshot_id"]
    as_json(capsys, "chat", "-s", "ann", "-m", "thanks")
    assert main(["chat", "--snapshot", first, "-m", "count to three", "-m", "thanks"]) == 0
    capsys.readouterr()
    rows = as_json(capsys, "sessions", "tree", "ann")["rows"]
    assert [len(row["children"]) for row in rows] == [2, 0, 1, 0]


def test_lines_are_turns_until_the_person_leaves(url):
    done = subprocess.run(
        [sys.executable, "-m", "antiphon.cli", "chat", "-s", "ann"],
        input=b"hello\n\n  thanks \n/quit\ncount to three\n",
        capture_output=True,
        env=dict(os.environ),
        timeout=50,
        check=True,
    )
    assert done.stdout == b"Hello! What can I do for you?\nYou are welcome.\n"


def test_a_question_is_shown_and_the_next_line_answers_it(url, tmp_path, capsys):
    tools = tmp_path / "money.py"
    tools.write_text(TOOLS, encoding="utf-8")
    assert main(["chat", "-s", "ann", "--tool", str(tools), "-m", "pay 20", "-m", "yes"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "sure: Pay 20?\n20 was paid.\n"
    assert "pay" in shown.err


def test_a_question_that_an_earlier_process_left_open_is_shown_again_and_answered(url, tmp_path, capsys):
    tools = tmp_path / "money.py"
    tools.write_text(TOOLS, encoding="utf-8")
    asked = as_json(capsys, "chat", "-s", "ann", "--tool", str(tools), "-m", "pay 20")
    assert asked["finish_reason"] == "interrupted"
    for where, answer, told in (
        (["-s", "ann"], "yes", "20 was paid."),
        (["--snapshot", asked["snapshot_id"]], "no", "Nothing was paid."),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "antiphon.cli", "chat", *where, "--tool", str(tools), "-m", answer],
            capture_output=True,
            text=True,
            env=dict(os.environ),
            timeout=50,
            check=True,
        )
        assert done.stdout == f"sure: Pay 20?\n{told}\n"


def test_of_several_questions_a_line_answers_the_first():
    screen, waiting = Screen(as_json=False), []

    @tool
    def pay(amount: int, ctx: ToolContext) -> str:
        """Pay."""
        waiting.append((amount, ctx.interrupt("sure", f"Pay {amount}?")))
        return f"{amount} was paid."

    model = ScriptedModel([Answer(tool_uses=[("pay", {"amount": 1}), ("pay", {"amount": 2})]), "So."])
    talk = _Chat(Runner(lambda: Agent(model, tools=[pay]), store=InMemorySessionStore()), screen, "s", None)
    assert talk.say_all(["pay", "yes", "no"]) == 0
    assert sorted(waiting) == [(1, "yes"), (2, "no")]
    assert not talk.asked


def test_without_a_store_a_chat_says_that_it_is_forgotten(capsys, monkeypatch):
    monkeypatch.delenv("ANTIPHON_STORE", raising=False)
    assert main(["chat", "-m", "hello"]) == 0
    assert "nothing of this is kept" in capsys.readouterr().err


def test_a_snapshot_or_session_that_cannot_be_gone_on_from_has_its_exit_code(url, capsys):
    assert main(["chat", "--snapshot", "nope", "-m", "hello"]) == 3
    assert main(["chat", "-s", "a/b", "-m", "hello"]) == 2


def test_a_model_may_be_named_and_what_names_none_is_told(capsys, monkeypatch):
    monkeypatch.delenv("ANTIPHON_STORE", raising=False)
    assert main(["chat", "--model", "embedded", "-m", "hello"]) == 0
    assert capsys.readouterr().out == "Hello! What can I do for you?\n"
    assert main(["chat", "--model", "nobody:x", "-m", "hello"]) != 0
    assert "write one of anthropic:<model id>" in capsys.readouterr().err.replace("\n", " ")
    assert main(["chat", "--model", "bogus", "-m", "hello"]) == 2
    told = capsys.readouterr().err
    assert "model='bogus' names no provider: write one of anthropic:<model id>" in told
    assert "AWS" not in told


def test_a_turn_of_which_nothing_was_saved_names_no_snapshot(capsys):
    talk = _Chat(
        Runner(lambda: Agent(ScriptedModel([])), store=InMemorySessionStore()), Screen(as_json=False), "s", None
    )
    assert talk.say_all(["hello"]) != 0
    assert "session s, nothing saved" in capsys.readouterr().err
