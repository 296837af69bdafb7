"""JSON Patch, and what is different in two snapshots."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidInputError, NotJsonError
from antiphon.jsonable import same_json
from antiphon.snapshot.diff import SnapshotDiff, diff_snapshots
from antiphon.snapshot.envelope import Snapshot
from antiphon.snapshot.patch import apply_patch, make_patch

leaves = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, -0.0, 1.0, 0.5]) | st.binary(max_size=2)
    | st.text("a/~0", max_size=3)
)  # fmt: skip
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text("a/~1", max_size=2), inner, max_size=4)
)
messages = st.lists(
    st.builds(
        lambda role, text, n: {"role": role, "content": [{"text": text}], "metadata": {"n": n}},
        st.sampled_from(["user", "assistant"]),
        st.sampled_from("abc"),
        st.sampled_from([1, 1.0, True]),
    ),
    max_size=12,
)
states = st.dictionaries(st.sampled_from(["state", "system_prompt", "artifacts"]), values, max_size=3)
snapshots = st.builds(
    lambda listed, data, app_data: Snapshot("agent", "1.0", {**listed, **data}, app_data, "2026-01-01T00:00:00Z"),
    st.just({}) | messages.map(lambda found: {"messages": found}) | st.just({"messages": "none of ours"}),
    states,
    states,
)


@given(values, values)
def test_a_patch_makes_the_second_value_of_the_first(one: Any, other: Any) -> None:
    patch = make_patch(one, other)
    assert same_json(apply_patch(one, patch), other)
    assert bool(patch) != same_json(one, other)


@given(snapshots, snapshots)
def test_a_difference_makes_the_second_snapshot_of_the_first(one: Snapshot, other: Snapshot) -> None:
    difference = diff_snapshots(one, other)
    made = difference.apply(one)
    assert same_json([made.data, made.app_data], [other.data, other.app_data])
    assert bool(difference) != same_json([one.data, one.app_data], [other.data, other.app_data])


def test_a_patch_is_small_where_little_has_changed() -> None:
    one = {"cart": [{"name": f"n{number}", "count": number} for number in range(100)], "note": "a"}
    other = {"cart": [*one["cart"][:40], {"name": "new", "count": 1.0}, *one["cart"][40:]], "note": "b"}
    assert make_patch(one, other) == [
        {"op": "add", "path": "/cart/40", "value": {"name": "new", "count": 1.0}},
        {"op": "replace", "path": "/note", "value": "b"},
    ]
    assert make_patch(other, one)[0] == {"op": "remove", "path": "/cart/40"}


# From RFC 6902, appendix A, and RFC 6901.
@pytest.mark.parametrize(
    ("value", "operation", "wanted"),
    [
        ({"foo": "bar"}, {"op": "add", "path": "/baz", "value": "qux"}, {"foo": "bar", "baz": "qux"}),
        ({"foo": ["bar", "baz"]}, {"op": "add", "path": "/foo/1", "value": "qux"}, {"foo": ["bar", "qux", "baz"]}),
        ({"foo": ["bar"]}, {"op": "add", "path": "/foo/-", "value": ["abc"]}, {"foo": ["bar", ["abc"]]}),
        ({"foo": "bar", "baz": 1}, {"op": "remove", "path": "/baz"}, {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, {"op": "remove", "path": "/foo/1"}, {"foo": ["bar", "baz"]}),
        ({"a": {"b": 1}, "c": {}}, {"op": "move", "from": "/a/b", "path": "/c/d"}, {"a": {}, "c": {"d": 1}}),
        ({"foo": [1, 2, 3, 4]}, {"op": "move", "from": "/foo/1", "path": "/foo/3"}, {"foo": [1, 3, 4, 2]}),
        ({"a": [1]}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": [1], "b": [1]}),
        ({"/": 9, "~1": 10}, {"op": "test", "path": "/~01", "value": 10}, {"/": 9, "~1": 10}),
        ({"": {"": 1}}, {"op": "replace", "path": "//", "value": 2}, {"": {"": 2}}),
        ({"foo": 1}, {"op": "add", "path": "", "value": [1], "xyz": 123}, [1]),
    ],
)
def test_operations_do_what_the_standard_says(value: Any, operation: Any, wanted: Any) -> None:
    assert apply_patch(value, [operation]) == wanted


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/a/b/c", "value": 1},
        {"op": "add", "path": "/list/3", "value": 1},
        {"op": "add", "path": "/list/01", "value": 1},
        {"op": "add", "path": "/list/-1", "value": 1},
        {"op": "add", "path": "/list/²", "value": 1},
        {"op": "add", "path": "/n/0", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "value": 1},
        {"op": "add", "path": "/a"},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "replace", "path": "/list/-", "value": 1},
        {"op": "remove", "path": "/missing"},
        {"op": "remove", "path": "/list/2"},
        {"op": "remove", "path": ""},
        {"op": "move", "from": "/a", "path": "/a/b"},
        {"op": "move", "path": "/a"},
        {"op": "test", "path": "/n", "value": 1.0},
        {"op": "rename", "path": "/n"},
        {"path": "/n"},
    ],
)
def test_operations_that_make_no_sense_are_refused(operation: Any) -> None:
    value = {"a": {"b": "x"}, "list": [1, 2], "n": 1}
    with pytest.raises(InvalidInputError):
        apply_patch(value, [{"op": "add", "path": "/new", "value": 1}, operation])
    assert value == {"a": {"b": "x"}, "list": [1, 2], "n": 1}


def said(*texts: str) -> list[Any]:
    return [{"role": "user", "content": [{"text": text}]} for text in texts]


def test_messages_are_added_removed_or_changed() -> None:
    one = Snapshot("agent", "1.0", {"messages": said("a", "b", "c", "d"), "state": {"n": 1}}, {"x": 1})
    after = [*said("a", "B", "c"), {"role": "assistant", "content": []}, *said("e")]
    found = diff_snapshots(one, Snapshot("agent", "1.0", {"messages": after, "state": {"n": 2}}, {"x": 1}))
    assert [(change.before_index, change.after_index, change.after) for change in found.changed] == [(1, 1, after[1])]
    assert [placed.index for placed in found.removed] == [3]
    assert [placed.index for placed in found.added] == [3, 4]
    assert found.state == [{"op": "replace", "path": "/n", "value": 2}]
    assert not found.app_data


def test_the_order_of_keys_is_no_difference() -> None:
    one = Snapshot("agent", "1.0", {"messages": [{"role": "user", "content": []}], "state": {"a": 1, "b": 2}}, {})
    other = Snapshot("agent", "1.0", {"state": {"b": 2, "a": 1}, "messages": [{"content": [], "role": "user"}]}, {})
    assert not diff_snapshots(one, other)


def test_no_snapshot_has_nothing() -> None:
    some = Snapshot("agent", "1.0", {"messages": said("a"), "state": None}, {})
    assert not diff_snapshots(None, None)
    found = diff_snapshots(None, some)
    assert found.state == [{"op": "add", "path": "", "value": None}]
    assert len(found.added) == 1
    assert diff_snapshots(some, None) == SnapshotDiff(
        removed=found.added, data=tuple({"op": "remove", "path": f"/{name}"} for name in ("messages", "state"))
    )


def test_a_long_conversation_of_the_same_words_is_compared_in_little_time() -> None:
    words = said(*"ab" * 4000)
    found = diff_snapshots(
        Snapshot("agent", "1.0", {"messages": [*said("x"), *words, *said("y")]}, {}),
        Snapshot("agent", "1.0", {"messages": [*said("z"), *words, *said("w")]}, {}),
    )
    made = found.apply(Snapshot("agent", "1.0", {"messages": [*said("x"), *words, *said("y")]}, {}))
    assert made.data["messages"] == [*said("z"), *words, *said("w")]


def test_what_cannot_be_stored_cannot_be_compared() -> None:
    with pytest.raises(NotJsonError):
        diff_snapshots(None, Snapshot("agent", "1.0", {"messages": [{"role": float("nan")}]}, {}))
