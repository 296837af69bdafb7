"""Writes docs/errors.md from src/antiphon/errors.py; with `--check`, says whether the page is up to date."""

import argparse
import inspect
import sys
from pathlib import Path

from antiphon import errors

PAGE = Path(__file__).parent.parent / "docs" / "errors.md"

INTRODUCTION = """\
# Errors

Written by `make docs` from `src/antiphon/errors.py`: change it there.

To catch everything this library raises, catch `AntiphonError`. To decide by kind of failure and not by class, read
`error.status`. A class with a builtin beside its name is a subclass of that too, so that `except ValueError` works
where you would expect it. The message names the value that was wrong; an error of a driver or provider is its
`__cause__`.

| class | status | builtin | when | what to do |
|---|---|---|---|---|
"""


def error_classes() -> list[type[errors.AntiphonError]]:
    """Every error class, in the order of the module: each parent before its children."""
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.AntiphonError) and value.__module__ == errors.__name__
    ]


def depth(error: type[errors.AntiphonError]) -> int:
    """How far below the root the class stands."""
    return sum(issubclass(base, errors.AntiphonError) for base in error.__mro__[1:])


def builtin(error: type[errors.AntiphonError]) -> str:
    """The builtins it can be caught by, most special first, without those every error is."""
    common = (Exception, BaseException, object)
    own = [base for base in error.__mro__ if base.__module__ == "builtins" and base not in common]
    named = [base for base in own if not any(base is not other and issubclass(other, base) for other in own)]
    return ", ".join(f"`{base.__name__}`" for base in named)


def summary(error: type[errors.AntiphonError]) -> str:
    """The first paragraph of its docstring."""
    return " ".join(inspect.cleandoc(error.__doc__ or "").split("\n\n")[0].split())


def cell(text: str) -> str:
    """The text, so that it stays within its cell of a table."""
    return text.replace("|", "\\|")


def page() -> str:
    """The whole page."""
    rows = [
        f"| {'· ' * depth(error)}`{error.__name__}` | `{error.status}` | {builtin(error)} | {cell(summary(error))} "
        f"| {cell(error.remedy)} |\n"
        for error in error_classes()
    ]
    return INTRODUCTION + "".join(rows)


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
