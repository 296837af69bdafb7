"""Every command, over every store that a URL names, each in the real way: by its words, in an order that makes sense."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from antiphon.cli.app import app
from antiphon.cli.entry import main
from antiphon.clock import SYSTEM_CLOCK
from tests.cli.conftest import KINDS
from tests.cli.test_tasks import LONG_AGO, left_behind


def leaves(command, path=()):
    """The words of every command that does something."""
    inner = getattr(command, "commands", {})
    if not inner:
        yield " ".join(path)
    for name, each in inner.items():
        yield from leaves(each, (*path, name))


class Script:
    """Carries out commands on one store, and notes which.

    Args:
        url: The store.
        capsys: Pytest's.
    """

    def __init__(self, url, capsys):
        self.url, self.capsys, self.done = url, capsys, set()

    def __call__(self, command, *arguments, code=0):
        """What a command says as JSON."""
        self.done.add(command)
        told = main([*command.split(), *arguments, "--store", self.url, "--json"])
        shown = self.capsys.readouterr()
        assert told == code, shown.err
        return json.loads(shown.out) if shown.out else None


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_works_over_every_store(kind, make_url, tmp_path, capsys):
    run = Script(make_url(kind), capsys)
    first = run("chat", "-s", "ann", "-m", "hello")["snapshot_id"]
    second = run("chat", "-s", "ann", "-m", "my name is Ann")["snapshot_id"]
    run("chat", "--snapshot", first, "-m", "count to three")
    talk = run("talk", "-s", "ann", "-t", "thanks", "-o", str(tmp_path / "heard.wav"), "--fast")
    assert talk["turn"][-1]["text"] == "You are welcome."
    tree = run("sessions tree", "ann")["rows"]
    assert [len(row["children"]) for row in tree] == [2, 0, 1, 0]
    assert run("sessions list")["sessions"][0]["snapshots"] == 4
    assert run("sessions show", second)["parent_id"] == first
    assert not run("sessions diff", first, second)["same"]
    assert run("sessions branch", second, "--to", "bob")["parent_id"] == second
    file = tmp_path / "bob.jsonl"
    assert run("sessions export", "bob", "-o", str(file))["bytes"] == file.stat().st_size
    run("sessions import", str(file), code=4)
    assert run("sessions redact", "ann", "-t", "Ann", "--yes")["replaced"] > 0
    assert run("sessions delete", "bob", "--yes")["deleted"] == ["bob"]
    assert run("sessions import", str(file))["sessions"] == ["bob"]
    assert run("store check") == {
        "tenant": "global",
        "sessions": 2,
        "snapshots": 5,
        "damaged": [],
        "erasure_pending": False,
    }
    pruned = run("sessions prune", "ann", "--keep", "1", "--yes")["pruned"][0]["snapshot_ids"]
    assert second in pruned
    dead, alive = (
        asyncio.run(left_behind(run.url, start, name))
        for name, start in (("dead", LONG_AGO), ("alive", SYSTEM_CLOCK.utc()))
    )
    assert {task["snapshot_id"]: task["status"] for task in run("tasks list")["tasks"]} == {
        dead: "expired",
        alive: "pending",
    }
    run("tasks wait", alive, "--timeout", "0.05", code=1)
    assert run("tasks abort", alive)["before"] == "pending"
    adopted = run("tasks adopt", dead)
    assert (adopted["snapshot_id"], adopted["status"]) == (dead, "completed")
    assert run.done == set(leaves(typer.main.get_command(app)))


def test_a_check_names_the_damaged_session_of_a_database(database, tmp_path, capsys):
    import psycopg

    from antiphon.store.postgres.packing import pack

    run = Script(database, capsys)
    run("chat", "-s", "ann", "-m", "hello")
    run("chat", "-s", "bob", "-m", "count to three")
    with psycopg.connect(database, autocommit=True) as connection:
        [(session, size)] = connection.execute(
            "SELECT number, size FROM antiphon.runs JOIN antiphon.sessions ON number = session WHERE session_id = 'bob'"
        ).fetchall()
        connection.execute("UPDATE antiphon.runs SET value = %s WHERE session = %s", (pack([b"x"] * size), session))
    told = run("store check", code=4)
    assert [each["where"].split(",")[0] for each in told["damaged"]] == ["session bob"]
    assert run("sessions show", "ann")["session_id"] == "ann"
    run("sessions show", "bob", code=4)
    run("chat", "-s", "bob", "-m", "hello", code=4)
    assert len(run("sessions tree", "bob")["rows"]) == 1
    assert main(["sessions", "export", "bob", "--store", database, "-o", str(tmp_path / "bob.jsonl")]) == 0
    other = f"sqlite:{tmp_path / 'other'}"
    assert main(["sessions", "import", str(tmp_path / "bob.jsonl"), "--store", other]) == 2
    assert "line 2 of the export cannot be read" in capsys.readouterr().err


def test_a_database_that_is_not_there_or_cannot_be_reached_has_its_exit_code_and_shows_no_password(database, capsys):
    gone = database.replace("/cli_", "/gone_").replace("postgres@", "postgres:4711@")
    nobody = f"postgresql://postgres:4711@/x?host={Path('/nowhere')}"
    for url in (gone, nobody):
        assert main(["sessions", "list", "--store", url]) == 1
        told = capsys.readouterr().err
        assert told.startswith("antiphon: ")
        assert "4711" not in told


def test_whoever_only_looks_makes_no_tables(database, capsys):
    import psycopg

    for command in (["sessions", "list"], ["sessions", "tree", "ann"], ["tasks", "list"], ["store", "check"]):
        assert main([*command, "--store", database]) == 3
    assert "there is no store in database" in capsys.readouterr().err
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regnamespace('antiphon')").fetchone() == (None,)
    assert main(["chat", "-s", "ann", "-m", "hello", "--store", database]) == 0
    assert main(["sessions", "list", "--store", database]) == 0


def test_a_database_may_hold_several_stores_each_in_a_schema_that_its_url_names(database, capsys):
    talks = f"{database}&schema=talks"
    assert main(["sessions", "list", "--store", talks]) == 3
    assert "there is no store in schema 'talks' of database" in capsys.readouterr().err
    run, other = Script(talks, capsys), Script(database, capsys)
    run("chat", "-s", "ann", "-m", "hello")
    other("chat", "-s", "bob", "-m", "hello")
    assert [found["session_id"] for found in run("sessions list")["sessions"]] == ["ann"]
    assert [found["session_id"] for found in other("sessions list")["sessions"]] == ["bob"]


def test_tenants_of_a_database_see_their_own_sessions_only(database, capsys):
    run = Script(database, capsys)
    run("chat", "-s", "ann", "-m", "hello", "--tenant", "org/ann")
    assert run("sessions list")["sessions"] == []
    assert run("sessions list", "--tenant", "org/bob")["sessions"] == []
    checked = run("store check", "--tenant", "org/ann")
    assert (checked["tenant"], checked["sessions"]) == ("org/ann", 1)
    assert len(run("sessions list", "--tenant", "org/ann")["sessions"]) == 1
    run("sessions tree", "ann", code=3)


def test_another_process_goes_on_in_the_database(database, capsys):
    run = Script(database, capsys)
    run("chat", "-s", "ann", "-m", "hello")
    done = subprocess.run(
        [sys.executable, "-m", "antiphon.cli", "chat", "-s", "ann", "-m", "thanks", "--json", "--store", database],
        capture_output=True,
        timeout=50,
        check=True,
    )
    assert json.loads(done.stdout)["message"]["content"] == [{"text": "You are welcome."}]
    assert len(run("sessions tree", "ann")["rows"]) == 2
