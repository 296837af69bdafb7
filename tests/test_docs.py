"""The documentation is right: every `python` fence runs, every doctest holds, and generated pages are up to date."""

import ast
import asyncio
import doctest
import importlib
import inspect
import linecache
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from antiphon import errors
from tests.source_tree import SRC, read_modules

TOP = Path(__file__).parent.parent
PAGES = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
PAGE_SECONDS = 40
RECORDS = sorted((TOP / "docs" / "decisions").glob("*.md"))
RECORD_PARTS = ["## Question", "## Decision", "## Because", "## Price", "## How we would notice that we were wrong"]
RECORD_LINES = 60

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+|~~~+)(?P<info>.*)$")


@dataclass(frozen=True, slots=True)
class Fence:
    """A block of code: its info string, the line its code starts on (from 1), and the code without the indent."""

    info: str
    line: int
    code: str


def fences(page: str) -> Iterator[Fence]:
    lines = iter(enumerate(page.splitlines(), start=1))
    for number, line in lines:
        opening = FENCE.match(line)
        if opening is None:
            continue
        indent, closing = len(opening["indent"]), opening["ticks"]
        code = []
        for _, inner in lines:
            if inner.strip() == closing:
                break
            code.append(inner[indent:])
        else:
            pytest.fail(f"line {number}: a fence that is not closed")
        yield Fence(opening["info"].strip(), number + 1, "\n".join(code) + "\n")


def python_fences(page: Path) -> list[Fence]:
    return [fence for fence in fences(page.read_text(encoding="utf-8")) if fence.info == "python"]


def run_page(page: Path, code: list[Fence]) -> None:
    """Runs the fences of a page in order, in one namespace and on one loop; `await` may stand at the top."""
    name = f"page_{page.stem}"
    module = ModuleType(name)
    sys.modules[name] = module  # dataclasses and get_type_hints look up the module of a class
    text = page.read_text(encoding="utf-8").splitlines(keepends=True)
    linecache.cache[str(page)] = (sum(map(len, text)), None, text, str(page))  # inspect.getsource finds the fence
    try:
        with asyncio.Runner() as runner:
            for fence in code:
                source = "\n" * (fence.line - 1) + fence.code
                compiled = compile(source, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
                outcome = eval(compiled, vars(module))
                if inspect.iscoroutine(outcome):
                    runner.run(asyncio.wait_for(outcome, PAGE_SECONDS))
    finally:
        del sys.modules[name]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if python_fences(page)], ids=lambda page: str(page.relative_to(TOP))
)
def test_every_python_fence_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(TOP / "tests" / "audio", tmp_path / "tests" / "audio")  # where a reader finds it, in a clone
    try:
        run_page(page, python_fences(page))
    except errors.MissingExtraError as error:
        pytest.skip(f"from here on the page needs an extra: {error}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_no_fence_is_kept_from_being_run(page):
    evading = [
        f"{page.name}:{fence.line - 1}: ```{fence.info}"
        for fence in fences(page.read_text(encoding="utf-8"))
        if re.match(r"(py|pycon|ipython|python\d?)\b", fence.info, re.IGNORECASE) and fence.info != "python"
    ]
    assert not evading, f"write ```python, and code that runs: {evading}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_every_link_within_the_repository_leads_somewhere(page):
    prose = re.sub(r"^( *)(```+).*?^\1\2$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)
    broken = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_every_make_command_that_is_shown_exists(page):
    known = set(re.findall(r"^([a-z]+):", (TOP / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = set(re.findall(r"(?:^|`)make ([a-z]+)\b", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert shown <= known


def test_a_fence_shares_names_with_the_fences_before_it_and_may_await(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nimport asyncio\nevent = asyncio.Event()\n```\n"
        "1. in a list\n\n   ```python\n   event.set()\n   await event.wait()\n   ```\n"
        "```python\nassert event.is_set()\nasyncio.run(asyncio.sleep(0))\n```\n",
        encoding="utf-8",
    )
    assert [fence.line for fence in python_fences(page)] == [2, 8, 12]
    run_page(page, python_fences(page))


def test_a_fence_that_fails_is_reported_with_its_line_on_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nfine = 1\nassert fine == 2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError) as caught:
        run_page(page, python_fences(page))
    assert caught.traceback[-1].lineno + 1 == 5


DOCTESTED = [name for name, module in read_modules(SRC).items() if ">>>" in module.path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", DOCTESTED)
def test_every_example_in_a_docstring_holds(name):
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.FAIL_FAST)
    assert outcome.attempted
    assert not outcome.failed


@pytest.mark.parametrize("script", sorted((TOP / "scripts").glob("*_doc.py")), ids=lambda script: script.name)
def test_generated_pages_are_up_to_date(script):
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_tree_of_errors_is_drawn_as_it_is():
    drawn = re.findall(r"^ *((?:│   |    )*)(?:[├└]── )(\w+)(?: \((\w+)\))?", errors.__doc__ or "", re.MULTILINE)
    assert [name for _, name, _ in drawn] == [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.AntiphonError) and value is not errors.AntiphonError
    ]
    for _, name, builtin in drawn:
        assert not builtin or builtin in {base.__name__ for base in getattr(errors, name).__mro__}, name


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_a_decision_record_has_its_five_parts_on_one_screen(record):
    lines = record.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("## ")] == RECORD_PARTS
    assert len(lines) <= RECORD_LINES


def test_decision_records_are_numbered_without_gap_or_twin():
    assert [record.name[:5] for record in RECORDS] == [f"{number:04}-" for number in range(1, len(RECORDS) + 1)]
