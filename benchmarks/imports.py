"""The load of the import suite: fresh processes that import something and say what it cost.

Standard library only: peers' interpreters run it, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from benchmarks.child import Numbers, Work

_PROGRAM = """
import sys, time
before, begin = len(sys.modules), time.process_time()
{statement}
cpu, modules = time.process_time() - begin, len(sys.modules) - before
import json, os
with open("/proc/self/statm") as statm:
    memory = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
print(json.dumps([cpu * 1e3, modules, memory / 2**20]))
"""


def import_cases(root: str, live_agent: str) -> dict[str, Work]:
    """Both cases.

    Args:
        root: The statement that imports the package.
        live_agent: One that imports the class that talks.
    """

    def of_root(*, quick: bool) -> Numbers:
        cpu, modules, _ = _cost(root, quick=quick)
        return {"root_ms": cpu, "root_modules": modules}

    def of_live_agent(*, quick: bool) -> Numbers:
        cpu, modules, memory = _cost(f"{root}\n{live_agent}", quick=quick)
        return {"live_agent_ms": cpu, "live_agent_modules": modules, "live_agent_mib": memory}

    return {"root": of_root, "live_agent": of_live_agent}


def _cost(statement: str, *, quick: bool) -> tuple[float, float, float]:
    """CPU in ms, modules, and memory of the process in MiB; of the cheapest run, once the byte code is there."""
    program = [sys.executable, "-c", _PROGRAM.format(statement=statement)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    runs = [
        subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
        for _ in range(2 if quick else 8)
    ]
    costs = [json.loads(run.stdout.strip().splitlines()[-1]) for run in runs[1:]]
    cpu, modules, memory = min(costs)
    return cpu, modules, memory
