"""Doing the cases, each in a process of its own, one subject after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.child import Numbers
from benchmarks.figures import Suite
from benchmarks.subject import ROOT, Subject

Results = dict[str, dict[str, Numbers]]
"""By suite and subject."""

_BOUND_S = 1800


def measure(
    suite: Suite, subjects: Sequence[Subject], *, only: Sequence[str] | None, quick: bool
) -> dict[str, Numbers]:
    """The figures of each subject.

    All do a case before anybody does the next one, so that numbers which are compared were taken close together.

    Args:
        suite: What to measure.
        subjects: Those that are here.
        only: Names of cases; None for all.
        quick: Whether a little of each is enough.
    """
    results: dict[str, Numbers] = {subject.name: {} for subject in subjects if subject.name in suite.modules}
    for case in suite.cases:
        if only and case.name not in only:
            continue
        for subject in subjects:
            if subject.name in results:
                print(f"{suite.name}: {case.name}: {subject.name} ...", end=" ", file=sys.stderr, flush=True)
                numbers = _ask(subject, suite.modules[subject.name], case.name, quick=quick)
                told = "has no such thing" if numbers is None else ", ".join(f"{v:.4g}" for v in numbers.values())
                print(told, file=sys.stderr, flush=True)
                results[subject.name] |= numbers or {}
    return results


def _ask(subject: Subject, module: str, case: str, *, quick: bool) -> Numbers | None:
    command = [subject.python, "-m", module, case, *(["--quick"] if quick else [])]
    environment = {**os.environ, "PYTHONPATH": ROOT, "PYTHONHASHSEED": "0", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=_BOUND_S
    )
    if done.returncode:
        sys.exit(f"failed: {' '.join(command)}\n{done.stderr[-3000:]}")
    numbers: Numbers | None = json.loads(done.stdout.strip().splitlines()[-1])
    return numbers
