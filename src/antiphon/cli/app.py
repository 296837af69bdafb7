"""The command's parts, put together."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from antiphon.cli.chatting import chat
from antiphon.cli.checking import store
from antiphon.cli.exits import ExitCode, code_of
from antiphon.cli.screen import plain
from antiphon.cli.sessions import sessions
from antiphon.cli.talking import talk
from antiphon.cli.tasks import tasks
from antiphon.errors import AntiphonError

app = typer.Typer(
    name="antiphon",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(sessions, name="sessions")
app.add_typer(tasks, name="tasks")
app.add_typer(store, name="store")
app.command()(chat)
app.command()(talk)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("antiphon"))
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Durable sessions for agents that speak and agents that write."""


def carry_out(arguments: Sequence[str] | None) -> int:
    """Carry out a command line, and return the exit code. What goes wrong is told on standard error."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="antiphon")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else ExitCode.OK if done.code is None else ExitCode.ERROR
    except AntiphonError as error:
        print(f"antiphon: {plain(str(error))}", file=sys.stderr)
        return code_of(error)
    except OSError as error:  # a file that cannot be read or written; a TimeoutError says nothing by itself
        told = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        print(f"antiphon: {plain(told) or 'it took longer than that'}", file=sys.stderr)
        return ExitCode.ERROR
    return ExitCode.OK
