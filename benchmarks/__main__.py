"""`python -m benchmarks [SUITE ...]`: run suites for every subject that is installed, and print one table."""

from __future__ import annotations

import argparse
import json
import sys
import time

from benchmarks.figures import Suite
from benchmarks.run import Results, measure
from benchmarks.subject import Subject, find_subjects
from benchmarks.suites import SUITES
from benchmarks.table import machine, page_with, tables


def main() -> None:
    """The command."""
    asked = _arguments()
    suites = [SUITES[name] for name in asked.suites or SUITES]
    names = list(dict.fromkeys(name for suite in suites for name in suite.modules))
    subjects, absent = find_subjects([name for name in names if not asked.subject or name in asked.subject])
    begin = time.perf_counter()
    results: Results = {}
    for suite in suites:
        results[suite.name] = measure(suite, subjects, only=asked.case, quick=asked.quick)
    _say(f"done in {time.perf_counter() - begin:.0f} s")
    if asked.json:
        print(json.dumps(_plain(suites, subjects, absent, results), indent=1))
        return
    text = tables(suites, subjects, absent, results, quick=asked.quick)
    print(text)
    if asked.page:
        with open(asked.page, encoding="utf-8") as page:
            written = page.read()
        for suite in suites:
            gone = {name: reason for name, reason in absent.items() if name in suite.modules}
            written = page_with(written, suite.name, tables([suite], subjects, gone, results))
        with open(asked.page, "w", encoding="utf-8") as page:
            page.write(written)
    if asked.quick:
        return
    missed = [label for label, met in _verdicts(suites, results) if met is False]
    if missed:
        _say("targets not met: " + "; ".join(missed))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"default: all ({', '.join(SUITES)})")
    parser.add_argument("--quick", action="store_true", help="a little of everything, to see that it runs")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--page", metavar="FILE", help="write the tables into a page of documentation, too")
    parser.add_argument("--subject", action="append", metavar="NAME", help="only this one; may be given again")
    parser.add_argument("--case", action="append", metavar="NAME", help="only this one; may be given again")
    asked = parser.parse_args()
    if unknown := [name for name in asked.suites if name not in SUITES]:
        parser.error(f"no suite {unknown[0]!r}: there are {', '.join(SUITES)}")
    return asked


def _verdicts(suites: list[Suite], results: Results) -> list[tuple[str, bool | None]]:
    return [
        (f"{figure.label} ({name})" if len(suite.ours) > 1 else figure.label, figure.met(numbers[figure.key], measured))
        for suite in suites
        for measured in [results[suite.name]]
        for case in suite.cases
        for figure in case.figures
        for name in suite.ours
        for numbers in [measured.get(name, {})]
        if figure.key in numbers
    ]


def _plain(suites: list[Suite], subjects: list[Subject], absent: dict[str, str], results: Results) -> dict[str, object]:
    return {
        "machine": machine(),
        "versions": {subject.name: subject.version for subject in subjects},
        "skipped": absent,
        "figures": [
            {
                "suite": suite.name,
                "figure": figure.key,
                "label": figure.label,
                "unit": figure.unit,
                "target": figure.target,
                "at_least": figure.at_least,
                "values": {name: numbers[figure.key] for name, numbers in measured.items() if figure.key in numbers},
            }
            for suite in suites
            for measured in [results[suite.name]]
            for case in suite.cases
            for figure in case.figures
        ],
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
