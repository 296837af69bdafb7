"""Where the command begins: before it is known whether its packages are installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from antiphon.errors import MissingExtraError

_PACKAGES = frozenset({"typer", "rich"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line.

    Args:
        arguments: The words after `antiphon`; None: those of this process.

    Returns:
        The exit code (`antiphon.cli.exits`).
    """
    try:
        from antiphon.cli.app import carry_out
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        print(f"antiphon: {MissingExtraError(package, 'cli')}", file=sys.stderr)
        return 1
    return carry_out(arguments)
