"""`python -m antiphon.demo [--text] [--dir DIR] [--json]`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from antiphon.demo.director import Director
from antiphon.demo.lines import find_clips
from antiphon.demo.news import warn
from antiphon.demo.phases import branch, draw, first_call, resume
from antiphon.demo.screen import Screen
from antiphon.errors import AntiphonError, InvalidInputError, MissingExtraError
from antiphon.models.embedded.live import EmbeddedBidiModel

_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo, or one of its processes. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m antiphon.demo",
        description="A talk that is killed in mid sentence, goes on, is rewound, and branches. "
        "The talk is shown on standard error; the tree and the figures go to standard output.",
    )
    parser.add_argument("--text", action="store_true", help="type instead of speaking; needs no extra")
    parser.add_argument("--dir", type=Path, help="an empty folder for everything that is written (default: a new one)")
    parser.add_argument("--clips", type=Path, help="the folder with the user's speech (default: tests/audio)")
    parser.add_argument("--json", action="store_true", help="tree and figures as JSON")
    parser.add_argument("--phase", choices=("call", "resume", "branch", "tree"), help=argparse.SUPPRESS)
    parser.add_argument("--figures", type=json.loads, default={}, help=argparse.SUPPRESS)
    parser.add_argument("--colour", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    try:
        if chosen.phase is not None:
            return asyncio.run(_phase(chosen))
        return _direct(chosen)
    except MissingExtraError as error:
        warn(f"demo: {error} | or run the demo with --text")
        return _USAGE
    except (AntiphonError, OSError) as error:
        warn(f"demo: {error}")
        return _USAGE
    except KeyboardInterrupt:
        return 130


async def _phase(chosen: argparse.Namespace) -> int:
    folder: Path = chosen.dir
    clips: Path | None = None if chosen.text else chosen.clips
    match chosen.phase:
        case "call":
            return await first_call(folder, clips)
        case "resume":
            return await resume(folder, clips)
        case "branch":
            return await branch(folder, clips)
        case _:
            return await draw(folder, chosen.figures, as_json=chosen.json, colour=chosen.colour)


def _direct(chosen: argparse.Namespace) -> int:
    clips = None if chosen.text else find_clips(chosen.clips).resolve()
    if clips is not None:
        EmbeddedBidiModel(voice=True)  # is the extra there?
    folder = Path(tempfile.mkdtemp(prefix="antiphon-demo-")) if chosen.dir is None else chosen.dir.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InvalidInputError(f"--dir {str(folder)!r} is not empty: the demo begins with an empty folder")
    colours = "NO_COLOR" not in os.environ
    screen = Screen(colour=colours and sys.stderr.isatty())
    director = Director(folder, clips, screen, as_json=chosen.json, colour=colours and sys.stdout.isatty())
    return asyncio.run(director.run())


if __name__ == "__main__":
    sys.exit(main())
