"""Who is measured, with which interpreter, and why somebody is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Something that can be measured here.

    Attributes:
        name: As suites know it.
        python: Its interpreter.
        version: Its release; empty where there is none.
    """

    name: str
    python: str
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A project to compare with.

    Attributes:
        distribution: What it is called where packages come from.
        requirement: What `python -m benchmarks.peers` installs; several with blanks between.
    """

    distribution: str
    requirement: str


PEERS = {
    "strands": Peer(distribution="strands-agents", requirement="strands-agents[bidi-openai]==1.62.0"),
    "pipecat": Peer(distribution="pipecat-ai", requirement="pipecat-ai==1.14.0"),
    "openai_agents": Peer(distribution="openai-agents", requirement="openai-agents==0.24.0"),
    "langgraph": Peer(distribution="langgraph", requirement="langgraph==1.2.24 langgraph-checkpoint-sqlite==3.1.2"),
}


def variable(name: str) -> str:
    """The environment variable that names a peer's interpreter."""
    return f"ANTIPHON_BENCH_{name.upper()}"


def folder(name: str) -> str:
    """Where `python -m benchmarks.peers` makes a peer's environment."""
    return os.path.join(ROOT, ".bench", name)


def find_subjects(names: Iterable[str]) -> tuple[list[Subject], dict[str, str]]:
    """The subjects that can be measured, and for each of the others the reason why not."""
    found: list[Subject] = []
    absent: dict[str, str] = {}
    for name in names:
        peer = PEERS.get(name)
        if peer is None:
            version = _version(sys.executable, "antiphon") if name == "antiphon" else ""
            found.append(Subject(name=name, python=sys.executable, version=version or ""))
            continue
        python = os.environ.get(variable(name)) or os.path.join(folder(name), "bin", "python")
        if not os.path.exists(python):
            absent[name] = (
                f"not installed: run `make bench-peers`, or name an interpreter that has it in {variable(name)}"
            )
        elif (version := _version(python, peer.distribution)) is None:
            absent[name] = f"{python} has no {peer.distribution}"
        else:
            found.append(Subject(name=name, python=python, version=version))
    return found, absent


def _version(python: str, distribution: str) -> str | None:
    code = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    asked = subprocess.run([python, "-c", code, distribution], capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else None
