"""What JSON can carry: copies, comparison, and the way to disk and back."""

import enum
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import NotJsonError
from antiphon.jsonable import BYTES_MARK, MAX_DEPTH, copy_json, decode_json, encode_json, private_copy, same_json

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
keys = texts | st.sampled_from([BYTES_MARK, "data", "value"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.sampled_from([0, 1, 0.0, -0.0, 1.0, True, False, 2**53, float(2**53), 5e-324, 1.7976931348623157e308])
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.binary(max_size=6)
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=10,
)
markers = st.fixed_dictionaries(
    {BYTES_MARK: st.booleans() | st.none() | texts}, optional={"data": values, "value": values, "more": values}
)


def exact(value: Any) -> str:
    """A text that differs whenever two values differ in type, bits or structure; the order of keys aside."""
    if isinstance(value, dict):
        return "dict:" + repr(sorted((key, exact(item)) for key, item in value.items()))
    if isinstance(value, list):
        return repr([exact(item) for item in value])
    return f"{type(value).__name__}:{value!r}"


@given(values | markers | st.lists(markers, max_size=2))
def test_whatever_is_stored_comes_back_to_the_bit(value: Any) -> None:
    assert exact(decode_json(encode_json(value))) == exact(value)
    assert encode_json(private_copy(value)) == encode_json(copy_json(value)) == encode_json(value)


@given(values, values)
def test_a_private_copy_equals_exactly_what_would_be_the_same_on_disk(one: Any, other: Any) -> None:
    assert same_json(one, one)
    assert (private_copy(one) == other) == (exact(one) == exact(other)) == same_json(one, other)


@given(st.lists(leaves, min_size=2, max_size=2))
def test_numbers_that_python_calls_equal_are_told_apart(pair: list[Any]) -> None:
    one, other = pair
    assert (private_copy({"x": [one]}) == {"x": [other]}) == (exact(one) == exact(other))


@given(values)
def test_a_copy_is_independent(value: Any) -> None:
    copied = copy_json({"inner": [value]})
    copied["inner"].append(1)
    assert copied["inner"][:1] == [value]
    assert copy_json([value]) == [value]


def test_tuples_subclasses_and_buffers_become_plain() -> None:
    class Colour(enum.StrEnum):
        RED = "rød"

    class Level(enum.IntEnum):
        HIGH = 3

    plain = copy_json(
        {"t": (1, [(2,)]), "c": Colour.RED, "l": Level.HIGH, "b": bytearray(b"x"), "m": memoryview(b"yz")[::2]}
    )
    assert exact(plain) == exact({"t": [1, [[2]]], "c": "rød", "l": 3, "b": b"x", "m": b"y"})
    assert type(plain["c"]) is str
    assert type(next(iter(copy_json({Colour.RED: 1})))) is str


@pytest.mark.parametrize(
    ("value", "path", "why"),
    [
        ({"a": [1, {"b": math.nan}]}, "root.a[1].b", "NaN"),
        ([-math.inf], "root[0]", "-Infinity"),
        ({"a": 2**64}, "root.a", "18446744073709551616"),
        ({"a": -(2**63) - 1}, "root.a", "64 bits"),
        ({"a": 10**5000}, "root.a", "an integer of 16610 bits"),
        ({"a": {"b": {1: 2}}}, "root.a.b", "the key 1"),
        ({"a": {"\ud800": 2}}, "root.a", "lone surrogate"),
        ({"a": ("x", "ab\udc00")}, "root.a[1]", "lone surrogate at position 2"),
        ({"a": {"b"}}, "root.a", "set"),
        ({"a": object}, "root.a", "type"),
        ({"a": 1j}, "root.a", "complex"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_json_does_not_know_is_refused_with_its_path(value: Any, path: str, why: str) -> None:
    for copier in (copy_json, private_copy):
        with pytest.raises(NotJsonError) as caught:
            copier(value, "root")
        assert caught.value.path == path
        assert str(caught.value).startswith(path)
        assert why in str(caught.value)


def test_bytes_are_refused_where_only_json_may_stand() -> None:
    with pytest.raises(NotJsonError, match=r"state\.x\[0\] is bytes"):
        copy_json({"x": [b""]}, "state", binary=False)


def test_nesting_is_bounded_and_a_value_within_the_bound_can_be_stored() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert decode_json(encode_json(copy_json(deep))) == deep
    with pytest.raises(NotJsonError, match="nested deeper"):
        copy_json([deep])
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(NotJsonError, match="nested deeper"):
        copy_json(loop)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"NaN",
        b'"\xff"',
        b'"\\ud800"',
        b"1e999",
        b"[" * 5000 + b"]" * 5000,
        b'{"__bytes_encoded__":true,"data":"*"}',
        b'{"__bytes_encoded__":true,"data":"A"}',
        b'{"a":' * 900 + b'{"__bytes_encoded__":true,"data":"AA=="}' + b"}" * 900,
    ],
    ids=range(10),
)
def test_what_cannot_be_decoded_is_a_value_error(data: bytes) -> None:
    try:
        decoded = decode_json(data)
    except ValueError:
        return
    # Only the last one is well-formed; how deep a decoder may go is the interpreter's to say.
    assert data.startswith(b'{"a":')
    assert isinstance(decoded, dict)


def test_marked_bytes_of_strands_are_bytes_and_lookalikes_with_more_keys_are_not() -> None:
    assert decode_json(b'{"__bytes_encoded__": true, "data": "AAE="}') == b"\x00\x01"
    lookalike = {BYTES_MARK: True, "data": "AAE=", "more": 1}
    assert decode_json(encode_json(lookalike)) == lookalike
