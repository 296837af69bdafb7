"""Exit codes, for scripts."""

from __future__ import annotations

from enum import IntEnum

from antiphon.errors import AntiphonError, NotResumableError, StaleEpochError, TerminalStatusError


class ExitCode(IntEnum):
    """What a command came to."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4


MEANINGS = {
    ExitCode.OK: "it was done",
    ExitCode.ERROR: "it failed: a store that cannot be reached, a turn that failed, a package that is not installed",
    ExitCode.USAGE: "the command line makes no sense: an unknown option, a value that cannot be used",
    ExitCode.NOT_FOUND: "there is no such session, snapshot or store",
    ExitCode.CONFLICT: "something is in the way: an id is taken, another writer was first, a row is in flight, bytes are damaged",
}
"""What the codes mean, for the manual."""

_BY_STATUS = {
    "INVALID_ARGUMENT": ExitCode.USAGE,
    "NOT_FOUND": ExitCode.NOT_FOUND,
    "ALREADY_EXISTS": ExitCode.CONFLICT,
    "ABORTED": ExitCode.CONFLICT,
    "DATA_LOSS": ExitCode.CONFLICT,
}


def code_of_status(status: str) -> ExitCode:
    """The code for a failure of this kind (`antiphon.errors.Status`).

    >>> code_of_status("NOT_FOUND")
    <ExitCode.NOT_FOUND: 3>
    """
    return _BY_STATUS.get(status, ExitCode.ERROR)


def code_of(error: AntiphonError) -> ExitCode:
    """The code for an error."""
    if isinstance(error, NotResumableError | StaleEpochError | TerminalStatusError):
        return ExitCode.CONFLICT
    return code_of_status(error.status)
