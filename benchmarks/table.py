"""The table, in Markdown that reads well as plain text."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from benchmarks.child import Numbers
from benchmarks.figures import Figure, Suite
from benchmarks.run import Results
from benchmarks.subject import Subject


def tables(
    suites: Sequence[Suite],
    subjects: Sequence[Subject],
    absent: dict[str, str],
    results: Results,
    *,
    quick: bool = False,
) -> str:
    """Everything that was measured, what it should be, and how many times as much the others take.

    Args:
        suites: Which.
        subjects: Those that were measured, in the order of the columns.
        absent: Why the others were not.
        results: Their figures.
        quick: Whether the numbers mean nothing.
    """
    versions = {subject.name: f"{subject.name} {subject.version}".strip() for subject in subjects}
    parts = [f"{datetime.now(UTC):%Y-%m-%d}, {machine()}."]
    if quick:
        parts.append("A quick run, which shows that everything runs. Its numbers mean nothing.")
    for suite in suites:
        measured = results[suite.name]
        others = [name for name in measured if name not in suite.ours]
        names = [*(name for name in suite.ours if name in measured), *others]
        figures = [figure for case in suite.cases for figure in case.figures]
        figures = [figure for figure in figures if any(figure.key in numbers for numbers in measured.values())]
        if len(suite.ours) == 1:
            rows = [
                ["", "target", versions.get(suite.ours[0], suite.ours[0]), "met", *(versions[name] for name in others)]
            ]
        else:
            rows = [["", "target", *(versions[name] for name in names)]]
        rows += [_row(suite, figure, names, measured, quick=quick) for figure in figures]
        parts += [f"### {suite.title}", _told(suite), _aligned(rows)]
    if absent:
        parts.append("\n".join(f"Skipped: {name}: {reason}" for name, reason in absent.items()))
    return "\n\n".join(parts)


def _told(suite: Suite) -> str:
    told = f"In brackets: times what {suite.base} has."
    return told if len(suite.ours) == 1 else f"{told} Bold: a target that is not met."


def _row(
    suite: Suite, figure: Figure, names: Sequence[str], measured: Mapping[str, Numbers], *, quick: bool
) -> list[str]:
    cells = [figure.label, _target(figure)]
    base = measured.get(suite.base, {}).get(figure.key)
    for name in names:
        value = measured[name].get(figure.key)
        cell = _cell(figure, value)
        if value is not None and base and name != suite.base and figure.unit != "×":
            cell += f" ({number(value / base)}×)"
        met = None if value is None or quick or name not in suite.ours else figure.met(value, measured)
        if len(suite.ours) > 1:
            cells.append(f"**{cell}**" if met is False else cell)
        else:
            cells += [cell, "" if met is None else "yes" if met else "**no**"] if name in suite.ours else [cell]
    return cells


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    unit = figure.unit if figure.of is None else f"× {figure.of}"
    return f"{'≥' if figure.at_least else '≤'} {number(figure.target)} {unit}".strip()


def _cell(figure: Figure, value: float | None) -> str:
    return "" if value is None else f"{number(value)} {figure.unit}".strip()


def number(value: float) -> str:
    """Two or three digits are all that a measurement is worth."""
    if value == 0:
        return "0"
    size = abs(value)
    return f"{value:,.0f}" if size >= 10 else f"{value:.1f}".removesuffix(".0") if size >= 1 else f"{value:.2g}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    head, *body = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    rule = "| " + " | ".join("-" * width for width in widths) + " |"
    return "\n".join([head, rule, *body])


def machine() -> str:
    """The class of machine: no name of it."""
    processor = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
            names = [line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name")]
            processor = names[0] if names else processor
    except OSError:
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    return (
        f"{platform.system()}, {os.cpu_count()} cores of {processor}, {memory:.0f} GiB, "
        f"{platform.python_implementation()} {platform.python_version()}, load {load:.1f}"
    )


def page_with(page: str, name: str, table: str) -> str:
    """`page` with a suite's table between its two marks, `<!-- name: begin -->` and `<!-- name: end -->`.

    Raises:
        ValueError: If the marks are not there.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in page or end not in page:
        raise ValueError(f"the page has no place for the table: put {begin} and {end} into it")
    return page[: page.index(begin) + len(begin)] + f"\n{table}\n" + page[page.index(end) :]
