"""Writes docs/events.md from the event classes; with `--check`, says whether the page is up to date."""

import argparse
import dataclasses
import inspect
import sys
from pathlib import Path

import msgspec

from antiphon import events
from antiphon.hooks import events as hook_events

PAGE = Path(__file__).parent.parent / "docs" / "events.md"
AGENT = "*(agent)* "

INTRODUCTION = """\
# Events

Written by `make docs` from `src/antiphon/events.py` and `src/antiphon/hooks/events.py`: change it there.

## Of a call

What `BidiAgent.receive()` yields, and what output streams take. Those marked *agent* are added by the agent; a model makes the
others. Fields are keywords, and those with a default may be left out. Each event has a `type` and a `to_dict()`. See
[voice](voice.md).

| class | `type` | fields | when |
|---|---|---|---|
"""

HOOKS = """
## For hooks

What callbacks of `add_hook` are called with; each has an `agent`, too. Fields in bold may be assigned. Where it says *reversed*,
callbacks run in reverse order of registration; *synchronous* events take synchronous callbacks only. See [hooks](hooks.md).

| class | fields | when |
|---|---|---|
"""


def first_paragraph(kind: type) -> str:
    """The first paragraph of a class's docstring, as one line of a table."""
    return " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split()).replace("|", "\\|")


def output_events() -> list[type[events.OutputEvent]]:
    """The events of a call, in the order of the module."""
    return [
        value
        for value in vars(events).values()
        if isinstance(value, type) and issubclass(value, events.OutputEvent) and value is not events.OutputEvent
    ]


def hook_event_classes() -> list[type[hook_events.HookEvent]]:
    """The hook events, in the order of the module."""
    return [
        value
        for value in vars(hook_events).values()
        if isinstance(value, type)
        and issubclass(value, hook_events.HookEvent)
        and value is not hook_events.HookEvent
        and value.__module__ == hook_events.__name__
    ]


def row(kind: type[events.OutputEvent]) -> str:
    """A call event's row."""
    when = first_paragraph(kind)
    by_agent = when.startswith(AGENT)
    names = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(kind))
    mark = " · *agent*" if by_agent else ""
    return f"| `{kind.__name__}`{mark} | `{kind.type}` | {names} | {when.removeprefix(AGENT)} |\n"


def hook_row(kind: type[hook_events.HookEvent]) -> str:
    """A hook event's row."""
    names = [field.name for field in dataclasses.fields(kind) if field.name != "agent"]
    shown = ", ".join(f"**`{name}`**" if name in kind.writable else f"`{name}`" for name in names)
    marks = [word for word, holds in (("reversed", kind.reverse), ("synchronous", kind.synchronous)) if holds]
    return f"| {' · '.join([f'`{kind.__name__}`', *(f'*{word}*' for word in marks)])} | {shown} | {first_paragraph(kind)} |\n"


def page() -> str:
    """The whole page."""
    return INTRODUCTION + "".join(map(row, output_events())) + HOOKS + "".join(map(hook_row, hook_event_classes()))


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
