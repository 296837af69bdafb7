"""Writes docs/cli.md from the help of the command `antiphon`; with `--check`, says whether the page is up to date."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from antiphon.cli.app import app
from antiphon.cli.exits import MEANINGS

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
WIDTH = 100

INTRODUCTION = """\
# Command line

Written by `make docs` from the command's own help: change it in `src/antiphon/cli/`.

`pip install 'antiphon[cli]'` gives the command `antiphon`. Name a store once, and look:

```sh
export ANTIPHON_STORE=sqlite:sessions.db
antiphon chat --session ann --message "count to three"
antiphon talk --session ann --input question.wav --output answer.wav
antiphon sessions list
antiphon sessions tree ann
antiphon store check
```

Data go to standard output, everything else to standard error. `--json` prints JSON in place of text. In files and pipes there
are no colours, nothing is cut off, and no progress is shown; `NO_COLOR` takes the colours away everywhere. Who only reads makes
no store: a path that is not there is an error. `antiphon --install-completion` teaches your shell the commands and options.

In a tree, `●` is a snapshot, `○` one that is in flight; the only child of a snapshot stands below it, and where there are
several, branches begin. A line says who said something, by `voice` or as `text`; of an answer that was cut off, what was not
heard is struck out.

## Exit codes

| code | when |
|---|---|
"""


def commands(command: Any, name: str, above: Any = None) -> Iterator[tuple[str, str]]:
    """Every command with its help, groups before what is in them."""
    # `COLUMNS` and the terminal do not count, so that the page is the same everywhere.
    context = command.make_context(name, [], parent=above, resilient_parsing=True, terminal_width=WIDTH)
    yield context.command_path, command.get_help(context)
    for each in getattr(command, "commands", {}).values():
        yield from commands(each, each.name, context)


def page() -> str:
    """The whole page."""
    codes = "".join(f"| {code.value} | {meaning} |\n" for code, meaning in MEANINGS.items())
    told = [
        f"\n## {path}\n\n```text\n{text.rstrip()}\n```\n"
        for path, text in commands(typer.main.get_command(app), "antiphon")
    ]
    return INTRODUCTION + codes + "".join(told)


def main() -> int:
    """Writes or checks the page; the exit code says whether it was up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is out of date")
    wanted = page()
    if parser.parse_args().check:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == wanted:
            return 0
        print(f"docs/{PAGE.name} is out of date: run `make docs`", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
