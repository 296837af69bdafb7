"""`antiphon sessions` and `antiphon store`: on sessions that a runner and a live agent's session manager wrote."""

import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import pytest

from antiphon import Agent, BidiAgent, Runner
from antiphon.cli.entry import main
from antiphon.models import EmbeddedBidiModel, EmbeddedModel
from antiphon.session import SnapshotSessionManager
from antiphon.store import open_store
from antiphon.testing import VirtualClock
from tests.cli.conftest import KINDS

ANN = "ann"


def command(*arguments, stdin=b"", **environment):
    """The real command, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "antiphon.cli", *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=50,
        check=False,
    )


async def fill(url):
    """A session with a fork, an account of what is where, and a session that was spoken and cut off."""
    with_state = {"plan": "tea"}
    store = open_store(url)
    runner = Runner(lambda: Agent(EmbeddedModel()), store=store, initial_state=lambda: dict(with_state))
    first = await runner.run("hello", session_id=ANN)
    second = await runner.run("how are you", session_id=ANN)
    left = await runner.run("count to three", snapshot_id=first.snapshot_id)
    clock = VirtualClock()
    agent = BidiAgent(
        EmbeddedBidiModel(voice=False, clock=clock),
        session_manager=SnapshotSessionManager("call", store=store, clock=clock),
        clock=clock,
    )

    async def typed():
        yield "tell me a short story about a dragon"
        await clock.sleep(4)
        yield "stop"
        await clock.sleep(4)
        agent.cancel()

    await agent.run(inputs=[typed()], outputs=[])
    store.close()
    return first.snapshot_id, second.snapshot_id, left.snapshot_id


@pytest.fixture(params=KINDS)
async def place(request, make_url, monkeypatch):
    url = make_url(request.param)
    monkeypatch.setenv("ANTIPHON_STORE", url)
    return url, await fill(url)


@pytest.fixture
async def ids(tmp_path, monkeypatch):
    url = f"sqlite:{tmp_path / 'sessions'}"
    monkeypatch.setenv("ANTIPHON_STORE", url)
    return await fill(url)


def as_json(capsys, *arguments, code=0):
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_the_list_names_every_session_with_its_newest_snapshot(place, capsys):
    _, (_, _, left) = place
    listed = as_json(capsys, "sessions", "list")
    assert listed["cursor"] is None
    ann = next(each for each in listed["sessions"] if each["session_id"] == ANN)
    assert {each["session_id"] for each in listed["sessions"]} == {ANN, "call"}
    assert (ann["snapshots"], ann["latest"]["snapshot_id"]) == (3, left)
    assert main(["sessions", "list", "--limit", "1"]) == 0
    shown = capsys.readouterr()
    cursor = re.search(r"--cursor (\S+)", shown.err)[1]
    assert len(shown.out.splitlines()) == 2
    rest = as_json(capsys, "sessions", "list", "--cursor", cursor)
    assert len(rest["sessions"]) == 1
    assert as_json(capsys, "sessions", "list", "--all", "--since", "2000-01-01", "--status", "failed")["sessions"] == []


def test_the_tree_draws_branches_with_what_was_said_in_each_turn(place, capsys):
    _, (first, second, left) = place
    assert main(["sessions", "tree", ANN]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if "●" in line]
    assert [line.split()[1] for line in heads] == [first, second, left]
    assert heads[1].startswith("├─● ")
    assert heads[2].startswith("╰─● ")
    assert all("completed" in head and "text" in head for head in heads)
    assert sum("hello" in line for line in lines) == 1
    assert "     text  assistant one, two, three." in lines
    told = as_json(capsys, "sessions", "tree", ANN)
    assert [row["children"] for row in told["rows"]] == [[second, left], [], []]
    assert told["rows"][2]["turn"][0] == {"who": "user", "text": "count to three", "spoken": False}


def test_the_tree_says_what_was_heard_of_a_spoken_answer(place, capsys):
    assert main(["sessions", "tree", "call"]) == 0
    assert re.search(r"voice assistant .+ \[cut off, \d\.\d s were heard\]", capsys.readouterr().out)
    rows = as_json(capsys, "sessions", "tree", "call")["rows"]
    cut = next(line for row in rows for line in row["turn"] if line.get("interrupted"))
    assert cut["spoken"]
    assert 3_500 < cut["heard_ms"] <= 4_000
    assert cut["unheard"]
    assert rows[0]["mode"] == "text+voice"  # the user typed, the agent spoke


def test_a_snapshot_is_shown_by_its_id_and_a_session_by_its_newest(place, capsys):
    _, (first, _, left) = place
    shown = as_json(capsys, "sessions", "show", first)
    assert shown["data"]["state"] == {"plan": "tea"}
    assert len(shown["data"]["messages"]) == 2
    assert as_json(capsys, "sessions", "show", ANN)["snapshot_id"] == left
    assert main(["sessions", "show", first]) == 0
    out = capsys.readouterr().out
    assert "Hello!" in out
    assert '"plan": "tea"' in out


def test_a_difference_is_told_by_message_and_in_colour_where_there_are_colours(ids):
    _, second, left = ids
    plain = command("sessions", "diff", second, left)
    assert plain.returncode == 0
    assert b"-    2  text  user      how are you\n+    2  text  user      count to three\n" in plain.stdout
    assert b"\x1b[" not in plain.stdout
    coloured = command("sessions", "diff", second, left, FORCE_COLOR="1", TERM="xterm-256color")
    assert b"\x1b[32m+" in coloured.stdout
    told = json.loads(command("sessions", "diff", second, left, "--json").stdout)
    assert not told["same"]
    assert told["changed"][0]["after"]["content"] == [{"text": "count to three"}]
    same = command("sessions", "diff", second, second)
    assert (same.stdout, same.stderr) == (b"", b"there is no difference\n")


def test_a_branch_is_a_session_of_its_own(ids, capsys):
    first, _, _ = ids
    row = as_json(capsys, "sessions", "branch", first, "--to", "bob")
    assert (row["session_id"], row["parent_id"]) == ("bob", first)
    assert main(["sessions", "branch", first, "--to", "bob"]) == 4
    assert "session 'bob' is there already" in capsys.readouterr().err
    assert main(["sessions", "branch", first]) == 0
    assert len(capsys.readouterr().out.split()) == 1


def test_what_one_store_exports_another_imports(place, tmp_path, capsys):
    file, other = tmp_path / "ann.jsonl", f"file:{tmp_path / 'other'}"
    done = as_json(capsys, "sessions", "export", ANN, "-o", str(file))
    assert done["bytes"] == file.stat().st_size
    assert file.stat().st_mode & 0o777 == 0o600
    assert as_json(capsys, "sessions", "import", str(file), "--store", other)["sessions"] == [ANN]
    assert main(["sessions", "import", str(file), "--store", other]) == 4
    before, after = (as_json(capsys, "sessions", "tree", ANN, *more) for more in ((), ("--store", other)))
    assert before == after
    capsys.readouterr()


def test_who_imports_a_file_that_is_not_there_makes_no_store(tmp_path, capsys):
    place = tmp_path / "new.db"
    assert main(["sessions", "import", str(tmp_path / "nothing.jsonl"), "--store", f"sqlite:{place}"]) == 1
    assert capsys.readouterr().err == f"antiphon: {tmp_path / 'nothing.jsonl'}: No such file or directory\n"
    assert not place.exists()


def test_of_several_files_the_one_that_cannot_be_imported_is_named(ids, tmp_path, capsys):
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_bytes(command("sessions", "export", ANN).stdout)
    bad.write_text("junk")
    assert main(["sessions", "import", str(good), str(bad), "--store", f"file:{tmp_path / 'other'}"]) == 2
    assert f"{bad}: line 1 of the export cannot be read" in capsys.readouterr().err


def test_an_export_goes_through_a_pipe(ids, tmp_path):
    exported = command("sessions", "export", ANN)
    other = f"sqlite:{tmp_path / 'other.db'}"
    assert command("sessions", "import", "-", "--store", other, stdin=exported.stdout).returncode == 0
    assert command("sessions", "export", ANN, "--store", other).stdout == exported.stdout


def test_an_export_that_fails_leaves_no_file(ids, tmp_path, capsys):
    assert main(["sessions", "export", "nobody", "-o", str(tmp_path / "x.jsonl")]) == 3
    assert not list(tmp_path.glob("x.jsonl*"))


def test_redacted_words_are_gone_from_every_snapshot_and_nothing_else_is(place, capsys):
    assert as_json(capsys, "sessions", "redact", ANN, "--text", "hello", "-i", "-p", "te.", "--yes")["replaced"] > 0
    assert main(["sessions", "export", ANN]) == 0
    exported = capsys.readouterr().out
    assert "ello" not in exported
    assert '"tea"' not in exported
    assert "how are you" in exported
    # The names that the library itself writes are no words of anybody's.
    assert as_json(capsys, "sessions", "redact", ANN, "--text", "user", "--text", "assistant", "--yes")["replaced"] == 0
    roles = [message["role"] for message in as_json(capsys, "sessions", "show", ANN)["data"]["messages"]]
    assert roles == ["user", "assistant"] * 2


@pytest.mark.parametrize("wrong", [[], ["--text", ""], ["--pattern", "("], ["--pattern", "x*"]])
def test_a_redaction_of_nothing_is_a_mistake(ids, wrong, capsys):
    assert main(["sessions", "redact", ANN, *wrong, "--yes"]) == 2


def test_old_snapshots_are_pruned_and_the_newest_stays(place, capsys):
    _, (_, second, left) = place
    pruned = as_json(capsys, "sessions", "prune", "--all", "--keep", "1", "--yes")["pruned"]
    assert next(each for each in pruned if each["session_id"] == ANN)["snapshot_ids"] == [second]
    assert as_json(capsys, "sessions", "show", ANN)["snapshot_id"] == left
    assert as_json(capsys, "sessions", "prune", ANN, "--older-than", "1d", "--yes")["pruned"][0]["snapshot_ids"] == []
    assert main(["sessions", "prune", "nobody", "--keep", "1", "--yes"]) == 3


@pytest.mark.parametrize(
    "wrong",
    [[ANN], ["--keep", "1"], [ANN, "--all", "--keep", "1"], [ANN, "--older-than", "soon"], [ANN, "--keep", "0"]],
)
def test_pruning_says_of_what_and_how_far(ids, wrong, capsys):
    assert main(["sessions", "prune", *wrong, "--yes"]) == 2


def test_a_session_that_is_deleted_is_gone(place, capsys):
    assert as_json(capsys, "sessions", "delete", ANN, "nobody", "--yes", code=3) == {
        "deleted": [ANN],
        "missing": ["nobody"],
    }
    assert main(["sessions", "tree", ANN]) == 3


def test_what_cannot_be_undone_is_not_done_unasked(ids):
    for arguments in (["delete", ANN], ["redact", ANN, "--text", "x"], ["prune", ANN, "--keep", "1"]):
        refused = command("sessions", *arguments)
        assert refused.returncode == 2
        assert b"--yes" in refused.stderr
    assert len(json.loads(command("sessions", "tree", ANN, "--json").stdout)["rows"]) == 3


def test_a_tenant_sees_its_own_sessions_only(ids, capsys):
    assert as_json(capsys, "sessions", "list", "--tenant", "org/ann")["sessions"] == []
    assert main(["sessions", "tree", ANN, "--tenant", "org/ann"]) == 3
    assert main(["sessions", "list", "--tenant", "../x"]) == 2


def test_a_store_that_is_whole_passes_its_check(place, capsys):
    told = as_json(capsys, "store", "check")
    assert told["sessions"] == 2
    assert told["snapshots"] >= 4
    assert told["damaged"] == []


def test_long_work_shows_a_bar_where_there_is_a_terminal_and_nowhere_else(ids):
    main_end, end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "antiphon.cli", "store", "check", "--json"],
        stdout=subprocess.PIPE,
        stderr=end,
        env={**os.environ, "TERM": "xterm-256color"},
    ) as checking:
        os.close(end)
        shown = b""
        with suppress(OSError):  # how Linux tells that the other end is closed
            while piece := os.read(main_end, 4096):
                shown += piece
        os.close(main_end)
        told = json.loads(checking.stdout.read())
    assert told["sessions"] == 2
    assert b"checking" in shown
    assert b"2/2" in shown
    assert command("store", "check", "--json").stderr == b""


async def test_a_check_names_the_damaged_session_of_a_folder(tmp_path):
    folder = tmp_path / "sessions"
    await fill(f"file:{folder}")
    logs = [path for path in folder.rglob("*") if path.is_file() and b"how are you" in path.read_bytes()]
    assert logs
    for log in logs:
        data = log.read_bytes()
        log.write_bytes(data.replace(b"how are you", b"how are y!u"))
    done = command("store", "check", "--json", "--store", f"file:{folder}")
    assert done.returncode == 4
    damaged = json.loads(done.stdout)["damaged"]
    assert any(each["where"] in {str(log) for log in logs} for each in damaged)
    shown = command("store", "check", "--store", f"file:{folder}")
    assert b"damaged" in shown.stderr
    assert str(logs[0]).encode() in shown.stdout


async def test_a_check_says_while_words_taken_back_are_held_by_a_reader(tmp_path):
    place = tmp_path / "sessions.db"
    await fill(f"sqlite:{place}")
    with closing(sqlite3.connect(place, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM message").fetchone()[0] > 0
        held = f"sqlite:{place}"
        assert command("sessions", "redact", ANN, "-t", "how are you", "--yes", "--store", held).returncode == 0
        shown = command("store", "check", "--store", held)
        assert shown.returncode == 0
        assert b"may still be in the store's files" in shown.stderr
        assert b"all can be read" in shown.stderr
        assert json.loads(command("store", "check", "--json", "--store", held).stdout)["erasure_pending"] is True
    assert command("store", "check", "--store", held).returncode == 0  # whoever opens the store next removes them
    assert json.loads(command("store", "check", "--json", "--store", held).stdout)["erasure_pending"] is False


def test_a_wrong_place_is_not_made(tmp_path, capsys):
    for url in (f"sqlite:{tmp_path / 'none.db'}", f"file:{tmp_path / 'none'}", f"file://{tmp_path / 'none'}"):
        assert main(["sessions", "list", "--store", url]) == 3
    assert not list(tmp_path.iterdir())
    assert "there is no store" in capsys.readouterr().err


def test_mistakes_on_the_command_line_have_their_exit_code(ids, capsys, monkeypatch):
    for wrong in (["frob"], ["sessions", "list", "--frob"], ["sessions", "list", "--store", "nope:x"]):
        assert main(wrong) == 2
    assert main(["sessions", "list", "--status", "odd"]) == 2
    monkeypatch.delenv("ANTIPHON_STORE")
    assert main(["sessions", "list"]) == 2
    assert "ANTIPHON_STORE" in capsys.readouterr().err


async def test_what_a_terminal_would_obey_is_not_shown(tmp_path, capsys):
    url = f"sqlite:{tmp_path / 'sessions'}"
    store = open_store(url)
    await Runner(lambda: Agent(EmbeddedModel()), store=store).run("a\x1b[2Jb\u202ec", session_id=ANN)
    store.close()
    for arguments in (["tree", ANN], ["show", ANN]):
        assert main(["sessions", *arguments, "--store", url]) == 0
        shown = capsys.readouterr().out
        assert "\x1b" not in shown
        assert "\u202e" not in shown


def test_the_command_says_which_extra_it_needs():
    program = (
        "import sys\n"
        "sys.modules['typer'] = None\n"  # as if it were not installed
        "from antiphon.cli.entry import main\n"
        "sys.exit(main(['sessions', 'list']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 1
    assert done.stderr == "antiphon: 'typer' is not installed: pip install 'antiphon[cli]'\n"


def test_the_command_tells_its_version_and_completes_in_shells(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", capsys.readouterr().out)
    done = command(_ANTIPHON_COMPLETE="complete_bash", COMP_WORDS="antiphon sessions t", COMP_CWORD="2")
    assert done.stdout.split() == [b"tree"]
