"""Ids: in order, in one form, and names that can be names."""

import os
import subprocess
import sys
import threading
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidIdError
from antiphon.ids import chance, check_id, is_uuid7, new_uuid7


def test_chance_is_below_one_and_favours_no_half() -> None:
    drawn = [chance() for _ in range(2000)]
    assert all(0 <= each < 1 for each in drawn)
    assert 800 < sum(each < 0.5 for each in drawn) < 1200  # eight standard deviations


def test_ids_are_strictly_increasing_within_a_process_whatever_the_thread() -> None:
    made: list[list[str]] = []

    def make() -> None:
        made.append([new_uuid7() for _ in range(5000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(ids == sorted(set(ids)) for ids in made)
    assert len({each for ids in made for each in ids}) == 20_000
    assert new_uuid7() > max(max(ids) for ids in made)


def test_an_id_is_a_uuid_of_version_7_in_its_canonical_form() -> None:
    made = new_uuid7()
    parsed = uuid.UUID(made)
    assert (parsed.version, parsed.variant, str(parsed)) == (7, uuid.RFC_4122, made)
    assert is_uuid7(made)


@pytest.mark.parametrize("change", [str.upper, lambda s: s + "\n", lambda s: f"{{{s}}}", lambda s: s.replace("-", "")])
def test_another_form_of_an_id_is_not_one(change: object) -> None:
    assert callable(change)
    assert not is_uuid7(change("01890a5d-ac96-774b-bcce-b302099a8abc"))
    assert not is_uuid7("01890a5d-ac96-474b-bcce-b302099a8abc")


FORK = """
import os, sys
from antiphon.ids import new_uuid7
before = [new_uuid7() for _ in range(10000)][-1]
child = os.fork()
mine = new_uuid7()
if child == 0:
    os._exit(0 if mine > before else 1)
assert mine > before
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_goes_on_after_its_parents_ids() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=50)


@pytest.mark.parametrize("value", ["a", "default-session", "org.42_user", "é𝄞", "a b", ".hidden", "...x", "x" * 200])
def test_a_name_can_be_a_name(value: str) -> None:
    assert check_id("session_id", value) == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "\t",
        "a/b",
        "a\\b",
        "/",
        ".",
        "..",
        "....",
        " a",
        "a ",
        "a\n",
        "a\x00",
        "a\x85b",
        "a\u2028b",
        "\ud800",
        "x" * 201,
        None,
        7,
        b"a",
        ["a"],
    ],
    ids=repr,
)
def test_what_cannot_be_a_name_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidIdError, match="session_id=") as caught:
        check_id("session_id", value)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 200


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_an_accepted_name_is_one_segment_of_a_storage_key(value: str) -> None:
    from antiphon.storage.base import normalize_key

    try:
        check_id("id", value)
    except InvalidIdError:
        return
    assert normalize_key(f"session/{value}/x") == f"session/{value}/x"
