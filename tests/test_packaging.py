"""What is installed, and how a fresh machine gets there."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

TOP = Path(__file__).parent.parent
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(lines: list[str]) -> set[str]:
    return {normal(re.match(r"[A-Za-z0-9._-]+", line)[0]) for line in lines}


def pins() -> dict[str, str]:
    lines = (TOP / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {normal(name): version for name, _, version in pairs}


def test_the_library_itself_needs_three_packages():
    assert required(PROJECT["dependencies"]) == {"msgspec", "pydantic", "typing-extensions"}


def test_constraints_are_plain_versions_and_name_no_host():
    lines = (TOP / "constraints.txt").read_text(encoding="utf-8").splitlines()
    odd = [line for line in lines if not re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.!+-]*", line)]
    assert not odd
    assert "://" not in "".join(lines)


def test_every_package_that_is_asked_for_has_the_version_it_was_tested_with():
    asked = required(PROJECT["dependencies"]).union(*map(required, PROJECT["optional-dependencies"].values()))
    assert asked - set(pins()) == set()


def test_the_tests_run_with_the_versions_that_are_written_down():
    installed = {normal(found.metadata["Name"]): found.version for found in metadata.distributions()}
    differing = {name: (version, installed[name]) for name, version in pins().items() if name in installed}
    assert {name: pair for name, pair in differing.items() if pair[0] != pair[1]} == {}


def test_the_package_carries_its_types_and_its_version():
    assert (TOP / "src" / "antiphon" / "py.typed").is_file()
    assert metadata.version("antiphon") == PROJECT["version"]


def test_ci_runs_what_a_person_runs():
    script = (TOP / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    commands = [line for line in script if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["exec make test"]
