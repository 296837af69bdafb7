"""Copies that share their tables of keys are what they were made from, to the bit."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.jsonable import encode_json, private_copy
from antiphon.store.compact import compact

FIELDS = [
    "role",
    "content",
    "text",
    "toolUse",
    "toolResult",
    "toolUseId",
    "name",
    "input",
    "status",
    "metadata",
    "bytes",
]
LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    LEAVES | WORDS | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | WORDS, inner, max_size=6),
    max_leaves=30,
)


def containers(value: Any) -> list[int]:
    inner: Any = []
    if isinstance(value, dict):
        inner = cast("dict[str, Any]", value).values()
    elif isinstance(value, list):
        inner = cast("list[Any]", value)
    else:
        return []
    return [id(cast("object", value)), *(one for item in inner for one in containers(item))]


@given(VALUES)
def test_a_compact_copy_is_the_same_to_the_bit_and_shares_nothing(value: Any):
    copy = private_copy(value)
    made = compact(copy)

    assert encode_json(made) == encode_json(copy)  # the order of keys, too
    assert made == value
    assert type(made) is type(copy)
    assert not set(containers(made)) & set(containers(copy))


@given(st.permutations(FIELDS), st.sampled_from([*FIELDS, "other", "réponse"]))
def test_a_compact_copy_may_be_changed_like_any_dict(order: list[str], name: str):
    made = compact(dict.fromkeys(order, "x"))
    again = compact(dict.fromkeys(order, "x"))

    made[name] = "y"
    made.pop(order[0], None)

    assert again == dict.fromkeys(order, "x")
    assert made == {key: value for key, value in {**again, name: "y"}.items() if key != order[0]}


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="another Python lays dicts out in its own way")
def test_a_message_takes_less_room():
    message = private_copy({"role": "user", "content": [{"text": "Hello"}]})
    made = compact(message)

    assert sys.getsizeof(made) < 0.6 * sys.getsizeof(message)
    assert sys.getsizeof(made["content"][0]) < 0.6 * sys.getsizeof(message["content"][0])


def test_words_of_a_message_never_become_names_of_attributes():
    """Python may keep those for good."""
    made = compact(private_copy({"role": "user", "a secret": "x"}))

    assert sys.getsizeof(made) == sys.getsizeof({"role": "user", "a secret": "x"}.copy())
