"""The benchmarks run, and say what they should. Nothing here depends on how fast anything is."""

import json
import shutil
import subprocess
import sys

import pytest

from benchmarks.figures import Case, Figure, Suite
from benchmarks.subject import PEERS, ROOT, Subject, find_subjects, variable
from benchmarks.suites import SUITES
from benchmarks.table import number, page_with, tables

SUITE = Suite(
    name="suite",
    title="A suite",
    cases=(
        Case(
            name="case",
            figures=(
                Figure(key="cost", label="cost", unit="µs", target=4.0),
                Figure(key="gain", label="gain", unit="", target=1000.0, at_least=True),
                Figure(key="other", label="other", unit="ms"),
                Figure(key="nobody", label="nobody has it", unit="ms"),
            ),
        ),
    ),
    modules={"antiphon": "a", "peer": "b"},
)
SUBJECTS = [Subject(name="antiphon", python="a", version="0.1"), Subject(name="peer", python="b")]


def bench(*arguments):
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("suite", SUITES.values(), ids=lambda suite: suite.name)
def test_a_quick_run_gives_every_figure_of_a_suite(suite):
    ours = [name for name in suite.ours if name != "antiphon_postgres"]  # a server takes a while to start
    done = bench(suite.name, "--quick", "--json", *(f"--subject={name}" for name in [*ours, suite.base, "lean"]))
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert [figure["figure"] for figure in figures] == [one.key for case in suite.cases for one in case.figures]
    by_hand = {"growth_kib", *(() if shutil.which("strace") else ("store_fsyncs",))}
    nobody_else_sees = {("antiphon_memory", figure) for figure in ("runner_abort_ms", "runner_abort_worst_ms")}
    assert all(
        figure["values"][name] >= 0
        for figure in figures
        if figure["figure"] not in by_hand
        for name in ours
        if (name, figure["figure"]) not in nobody_else_sees
    )


def test_an_unknown_suite_is_refused_by_name():
    done = bench("livee")
    assert done.returncode == 2
    assert "no suite 'livee'" in done.stderr


def test_a_figure_has_one_name_in_all_suites():
    keys = [figure.key for suite in SUITES.values() for case in suite.cases for figure in case.figures]
    assert len(keys) == len(set(keys))


def test_a_peer_that_is_not_installed_is_named_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv(variable("strands"), str(tmp_path / "python"))
    monkeypatch.setenv(variable("pipecat"), sys.executable)
    subjects, absent = find_subjects(["antiphon", "strands", "pipecat"])
    assert [subject.name for subject in subjects] == ["antiphon"]
    assert "make bench-peers" in absent["strands"]
    assert absent["pipecat"] == f"{sys.executable} has no {PEERS['pipecat'].distribution}"


def test_the_table_says_what_is_met_and_how_many_times_as_much_others_take():
    results = {"suite": {"antiphon": {"cost": 2.0, "gain": 900.0, "other": 3.0}, "peer": {"cost": 10.0}}}
    text = tables([SUITE], SUBJECTS, {"third": "not there"}, results)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert lines[0] == ["", "target", "antiphon 0.1", "met", "peer"]
    assert lines[2:] == [
        ["cost", "≤ 4 µs", "2 µs", "yes", "10 µs (5×)"],
        ["gain", "≥ 1,000", "900", "**no**", ""],
        ["other", "", "3 ms", "", ""],
    ]
    assert "Skipped: third: not there" in text


def test_a_table_of_several_of_ours_says_in_bold_what_is_not_met_and_compares_with_the_base():
    figures = (
        Figure(key="cost", label="cost", unit="ms", target=2.0, of="plain"),
        Figure(key="growth", label="growth", unit="×", target=1.5),
    )
    suite = Suite(
        name="suite",
        title="A suite",
        cases=(Case(name="case", figures=figures),),
        modules={"one": "a", "two": "b", "plain": "c"},
        ours=("one", "two"),
        base="plain",
    )
    subjects = [Subject(name=name, python="a") for name in suite.modules]
    results = {
        "one": {"cost": 3.0, "growth": 1.0},
        "two": {"cost": 5.0, "growth": 2.0},
        "plain": {"cost": 2.0, "growth": 9.0},
    }
    text = tables([suite], subjects, {}, {"suite": results})
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert lines[0] == ["", "target", "one", "two", "plain"]
    assert lines[2:] == [
        ["cost", "≤ 2 × plain", "3 ms (1.5×)", "**5 ms (2.5×)**", "2 ms"],
        ["growth", "≤ 1.5 ×", "1 ×", "**2 ×**", "9 ×"],
    ]


def test_a_quick_table_judges_nothing():
    results = {"suite": {"antiphon": {"cost": 200.0, "gain": 1.0, "other": 3.0}}}
    text = tables([SUITE], SUBJECTS, {}, results, quick=True)
    assert "numbers mean nothing" in text
    assert "**no**" not in text


def test_numbers_have_the_digits_that_a_measurement_is_worth():
    assert [number(value) for value in (0.0123, 0.5, 1.25, 2.0, 99.6, 12345.6)] == [
        "0.012",
        "0.5",
        "1.2",
        "2",
        "100",
        "12,346",
    ]


def test_a_suites_table_on_a_page_is_replaced_between_its_marks():
    page = "a\n<!-- one: begin -->\nold\n<!-- one: end -->\n<!-- two: begin -->\nkept\n<!-- two: end -->\nz\n"
    assert page_with(page, "one", "new") == page.replace("old", "new")
    with pytest.raises(ValueError, match="no place for the table"):
        page_with(page, "three", "new")
