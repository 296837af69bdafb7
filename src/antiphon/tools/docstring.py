"""Docstrings, taken apart: what a tool does, and what each of its arguments is."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring, taken apart.

    Attributes:
        text: All of it but the description of the arguments: what a tool returns, raises, and its examples are for the
            model, too.
        arguments: The description of each argument, in one line.
    """

    text: str = ""
    arguments: dict[str, str] = field(default_factory=dict[str, str])


_GOOGLE = re.compile(r"(Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters):\s*$")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*(?:\([^)]*\)[^)]*)*\))?\s*:(?:\s+(.*)|$)")
_NUMPY = re.compile(r"(Parameters|Other Parameters)\s*$")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_SPHINX = re.compile(r":(param|parameter|arg|argument|key|keyword|type)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")


def read_docstring(docstring: str | None) -> Docstring:
    r"""Take a docstring apart. Arguments may be described in the style of Google, numpy or Sphinx.

    >>> read_docstring("Book a seat.\n\nArgs:\n    row (int): Counted\n        from the stage.\n\nExamples: book row 5")
    Docstring(text='Book a seat.\n\nExamples: book row 5', arguments={'row': 'Counted from the stage.'})
    """
    lines = inspect.cleandoc(docstring or "").splitlines()
    kept: list[str] = []
    arguments: dict[str, list[str]] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        if _GOOGLE.match(line.strip()):
            at = _read_google(lines, at + 1, _indent(line), arguments)
        elif _NUMPY.match(line) and at + 1 < len(lines) and _is_rule(lines[at + 1]):
            at = _read_numpy(lines, at + 2, arguments)
        elif match := _SPHINX.match(line.strip()):
            at = _read_sphinx(lines, at, match, arguments)
        else:
            kept.append(line.rstrip())
            at += 1
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    found = {name: " ".join(" ".join(words).split()) for name, words in arguments.items()}
    return Docstring(text, {name: words for name, words in found.items() if words})


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_rule(line: str) -> bool:
    return len(line.strip()) > 2 and not line.strip().strip("-")


def _read_google(lines: list[str], at: int, outer: int, arguments: dict[str, list[str]]) -> int:
    inner: int | None = None
    words: list[str] = []
    while at < len(lines):
        line = lines[at]
        if line.strip():
            if _indent(line) <= outer:
                break
            inner = _indent(line) if inner is None else inner
            entry = _GOOGLE_ENTRY.match(line.strip()) if _indent(line) <= inner else None
            if entry is not None:
                words = arguments.setdefault(entry[1], [])
                words.append(entry[2] or "")
            else:
                words.append(line.strip())
        at += 1
    return at


def _read_numpy(lines: list[str], at: int, arguments: dict[str, list[str]]) -> int:
    words: list[list[str]] = []
    while at < len(lines):
        line = lines[at]
        if at + 1 < len(lines) and line.strip() and _is_rule(lines[at + 1]):
            break
        if line.strip() and not _indent(line):
            entry = _NUMPY_ENTRY.match(line.strip())
            if entry is None:
                break
            names = [name.strip().lstrip("*") for name in entry[1].split(",")]
            words = [arguments.setdefault(name, []) for name in names]
        else:
            for each in words:
                each.append(line.strip())
        at += 1
    return at


def _read_sphinx(lines: list[str], at: int, match: re.Match[str], arguments: dict[str, list[str]]) -> int:
    words = [] if match[1] == "type" else arguments.setdefault(match[2], [])
    words.append(match[3])
    outer = _indent(lines[at])
    at += 1
    while at < len(lines) and lines[at].strip() and _indent(lines[at]) > outer:
        words.append(lines[at].strip())
        at += 1
    return at
