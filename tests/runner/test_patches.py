"""JSON Patch: differences, and what they come to when they are applied."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidInputError
from antiphon.jsonable import same_json
from antiphon.runner.patches import apply_patch, diff, whole

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab/~", max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~-0", max_size=2), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, VALUES)
def test_a_difference_applied_to_the_old_value_gives_the_new_one(before, after):
    patch = diff(before, after)
    assert same_json(apply_patch(before, patch), after)
    assert (patch == []) == same_json(before, after)
    assert same_json(apply_patch(before, whole(after)), after)


def test_lists_grow_at_their_end_and_shrink_from_it():
    assert diff([1, 2], [1, 3, 4]) == [
        {"op": "replace", "path": "/1", "value": 3},
        {"op": "add", "path": "/-", "value": 4},
    ]
    assert diff([1, 2, 3], [1]) == [{"op": "remove", "path": "/2"}, {"op": "remove", "path": "/1"}]


def test_a_client_that_missed_something_is_not_stuck():
    assert apply_patch(None, [{"op": "add", "path": "/a/b", "value": 1}]) == {"a": {"b": 1}}
    assert apply_patch({}, [{"op": "remove", "path": "/a/b"}]) == {}
    assert apply_patch([], [{"op": "remove", "path": "/3"}]) == []


@pytest.mark.parametrize("operation", [{"op": "move", "path": "/a"}, {"op": "add"}, {"op": "add", "path": "a"}])
def test_operations_that_no_state_has_are_refused(operation):
    with pytest.raises(InvalidInputError):
        apply_patch({}, [operation])


def test_a_place_in_a_list_is_a_number():
    with pytest.raises(InvalidInputError, match="no place"):
        apply_patch({"a": [1]}, [{"op": "replace", "path": "/a/first", "value": 1}])
