"""What the suites and servers for tests want installed."""

import subprocess
import sys

import pytest

import antiphon.testing
import antiphon.testing.servers

SERVERS = antiphon.testing.servers.__all__


def told(statement: str, *missing: str) -> str:
    """What a process in which packages are missing says to a statement."""
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({missing!r}))\n"
        f"from antiphon.errors import MissingExtraError\ntry:\n    {statement}\nexcept MissingExtraError as error:\n"
        "    print(error)\nelse:\n    print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    return done.stdout.strip()


@pytest.mark.parametrize(
    "name", ["BidiModelContract", "ModelContract", "SessionStoreContract", "StorageContract", "StoreMachine"]
)
def test_a_suite_without_pytest_says_what_to_install(name):
    assert told(f"from antiphon.testing import {name}", "pytest", "hypothesis") in {
        f"{package!r} is not installed: pip install 'antiphon[testing]'" for package in ("pytest", "hypothesis")
    }


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_without_its_packages_says_what_to_install(name):
    words = told(f"from antiphon.testing.servers import {name}", "h11", "h2", "websockets")
    assert words == "fine" or words.endswith("is not installed: pip install 'antiphon[testing]'")


def test_fakes_and_clocks_need_no_package():
    fakes = [name for name in antiphon.testing.__all__ if not name.endswith(("Contract", "Machine"))]
    assert told(f"from antiphon.testing import {', '.join(fakes)}", "pytest", "hypothesis", "h11") == "fine"
