"""The manual, and the command as it is installed."""

from importlib import metadata
from pathlib import Path

import pytest
import typer

from antiphon.cli.app import app
from antiphon.cli.entry import main
from antiphon.cli.exits import MEANINGS, ExitCode, code_of
from antiphon.errors import (
    AntiphonError,
    CorruptStoreError,
    NotResumableError,
    SessionConflictError,
    SnapshotNotFoundError,
)

MANUAL = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def paths(command, path):
    yield path
    for name, each in getattr(command, "commands", {}).items():
        yield from paths(each, [*path, name])


def commands_of(path):
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    return getattr(command, "commands", {})


@pytest.mark.parametrize(
    "path", list(paths(typer.main.get_command(app), [])), ids=lambda path: " ".join(path) or "antiphon"
)
def test_every_command_is_in_the_manual_and_helps(path, capsys):
    assert f"\n## {' '.join(['antiphon', *path])}\n" in MANUAL
    assert main([*path, "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: antiphon")


@pytest.mark.parametrize(
    "path",
    [path for path in paths(typer.main.get_command(app), []) if path and not commands_of(path)],
    ids=" ".join,
)
def test_every_command_takes_a_store_a_tenant_and_tells_json(path):
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--store", "--tenant", "--json"} <= options


def test_every_exit_code_is_in_the_manual():
    assert set(MEANINGS) == set(ExitCode)
    assert all(f"| {code.value} | {meaning} |" in MANUAL for code, meaning in MEANINGS.items())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AntiphonError("x"), 1),
        (SnapshotNotFoundError("session", "x"), 3),
        (SessionConflictError("x", None, "y"), 4),
        (CorruptStoreError("x"), 4),
        (NotResumableError("x", "pending", "wait"), 4),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_has_the_exit_code_of_its_kind(error, code):
    assert code_of(error) == code


def test_the_command_is_installed_with_the_package():
    [found] = metadata.entry_points(group="console_scripts", name="antiphon")
    assert found.load() is main
