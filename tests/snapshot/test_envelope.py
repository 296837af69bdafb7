"""The envelope and its JSON, in the layout that Strands 1.62 writes."""

import json
import math
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import CorruptSnapshotError, InvalidInputError, SnapshotException
from antiphon.jsonable import BYTES_MARK, encode_json
from antiphon.snapshot import SCHEMA_VERSION, Snapshot, encode_snapshot_parts, read_parent_id
from antiphon.snapshot.envelope import read_head
from antiphon.snapshot.upgrade import Upgrades

numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = texts | st.sampled_from([BYTES_MARK, "data", "value", "messages"])
leaves = st.none() | st.booleans() | numbers | texts | st.binary(max_size=8)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)
dicts = st.dictionaries(keys, values, max_size=4)


def exact(value: Any) -> Any:
    """A form in which `==` sees the type and the bits of every number."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    if isinstance(value, float):
        return ("float", value.hex())
    return (type(value).__name__, value)


@given(dicts, dicts, st.none() | texts)
def test_what_json_and_bytes_can_say_comes_back_to_the_bit(
    data: dict[str, Any], app_data: dict[str, Any], parent: str | None
) -> None:
    snapshot = Snapshot("agent", SCHEMA_VERSION, data, app_data)
    stored = snapshot.to_json()
    back = Snapshot.from_json(stored)
    assert exact(back.to_dict()) == exact(snapshot.to_dict())
    assert back.to_json() == stored
    assert list(back.data) == list(data)
    assert exact(Snapshot.from_dict(snapshot.to_dict()).to_dict()) == exact(snapshot.to_dict())
    with_parent = b"".join(encode_snapshot_parts(snapshot, parent_id=parent))
    assert read_parent_id(with_parent) == parent
    assert Snapshot.from_json(with_parent) == back
    assert json.loads(stored)["schema_version"] == "1.0"


@given(st.lists(dicts, max_size=4), dicts, st.booleans())
def test_messages_encoded_beforehand_give_the_same_bytes(
    messages: list[dict[str, Any]], rest: dict[str, Any], within: bool
) -> None:
    rest.pop("messages", None)
    rest.pop(BYTES_MARK, None)
    whole = Snapshot("agent", SCHEMA_VERSION, {"messages": messages, **rest}, {})
    encoded = [encode_json(message) for message in messages]
    given_data = {"messages": None, **rest} if within else rest
    head = Snapshot("agent", SCHEMA_VERSION, given_data, {}, whole.created_at)
    assert b"".join(encode_snapshot_parts(head, encoded)) == whole.to_json()


def test_an_empty_stamp_is_filled_with_now_and_a_given_one_is_kept() -> None:
    assert Snapshot("agent", "1.0", {}, {}, "2026-01-01T00:00:00.000000Z").created_at == "2026-01-01T00:00:00.000000Z"
    stamp = Snapshot("agent", "1.0", {}, {}).created_at
    assert len(stamp) == len("2026-01-01T00:00:00.000000Z")
    assert stamp.endswith("Z")


def test_tuples_become_lists_and_every_kind_of_bytes_becomes_bytes() -> None:
    data = {"state": {"t": (1, (2,)), "b": bytearray(b"x"), "m": memoryview(b"y")}}
    back = Snapshot.from_json(Snapshot("agent", "1.0", data, {}).to_json())
    assert back.data == {"state": {"t": [1, [2]], "b": b"x", "m": b"y"}}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (2**64, "64 bits"),
        ("\ud800", "lone surrogate"),
        ({1: 2}, "key 1"),
        ({"\udfff": 2}, "lone surrogate"),
        ({1, 2}, "set"),
        (object(), "object"),
    ],
    ids=range(8),
)
def test_what_json_cannot_say_is_refused_with_its_path(value: Any, why: str) -> None:
    snapshot = Snapshot("agent", "1.0", {"state": {"cart": [{"price": value}]}}, {})
    for refused in (snapshot.to_json, lambda: Snapshot.from_dict(snapshot.to_dict())):
        with pytest.raises(SnapshotException, match=rf"data\.state\.cart\[0\]\.price.*{why}"):
            refused()
    with pytest.raises(SnapshotException, match=r"app_data\.x"):
        Snapshot("agent", "1.0", {}, {"x": value}).to_json()


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(SnapshotException, match="nested deeper"):
        Snapshot("agent", "1.0", {"state": {"x": loop}}, {}).to_json()


@pytest.mark.parametrize(
    "change", [{"scope": "swarm"}, {"scope": None}, {"data": []}, {"app_data": None}, {"created_at": 7}]
)
def test_a_malformed_envelope_is_refused_by_name(change: dict[str, Any]) -> None:
    envelope = Snapshot("agent", "1.0", {}, {}).to_dict() | change
    (name,) = change
    with pytest.raises(SnapshotException, match=name):
        Snapshot.from_dict(envelope)
    with pytest.raises(SnapshotException, match=name):
        Snapshot.from_json(json.dumps(envelope).encode())
    with pytest.raises(SnapshotException, match=name):
        Snapshot(**envelope).to_json()


@pytest.mark.parametrize("missing", ["created_at", "data", "schema_version"])
def test_a_missing_part_is_named(missing: str) -> None:
    envelope = Snapshot("agent", "1.0", {}, {}).to_dict()
    del envelope[missing]
    with pytest.raises(SnapshotException, match=missing if missing != "schema_version" else "schema version: None"):
        Snapshot.from_dict(envelope)


def test_scope_and_app_data_may_be_missing_and_unknown_keys_are_ignored() -> None:
    snapshot = Snapshot.from_dict({"schema_version": "1.0", "created_at": "x", "data": {}, "parent_id": "p", "new": 1})
    assert snapshot == Snapshot("agent", "1.0", {}, {}, "x")


def test_what_is_not_a_dict_is_not_a_snapshot() -> None:
    with pytest.raises(SnapshotException, match="not list"):
        Snapshot.from_dict([])  # type: ignore[arg-type]


def test_from_dict_copies() -> None:
    envelope = Snapshot("agent", "1.0", {"messages": [{"role": "user"}]}, {"a": []}).to_dict()
    snapshot = Snapshot.from_dict(envelope)
    envelope["data"]["messages"][0]["role"] = "edited"
    envelope["app_data"]["a"].append(1)
    assert snapshot.data == {"messages": [{"role": "user"}]}
    assert snapshot.app_data == {"a": []}


@given(st.data())
def test_bytes_that_were_cut_short_or_overwritten_are_corrupt_or_malformed_and_never_something_else(
    data: st.DataObject,
) -> None:
    stored = Snapshot("agent", "1.0", {"messages": [{"role": "user", "content": [{"text": "grüße"}]}]}, {}).to_json()
    cut = data.draw(st.integers(0, len(stored) - 1))
    with pytest.raises(CorruptSnapshotError):
        Snapshot.from_json(stored[:cut])
    broken = bytearray(stored)
    broken[cut] = data.draw(st.integers(0, 255))
    with suppress(SnapshotException):
        Snapshot.from_json(bytes(broken))
    for reader in (read_head, read_parent_id):
        with pytest.raises(CorruptSnapshotError):
            reader(stored[:cut])


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"[]",
        b"null",
        b"7",
        b'"text"',
        b"\x00" * 100,
        b"\xff\xfe{",
        b"[" * 100_000,
    ],
    ids=range(8),
)
def test_bytes_that_are_no_json_object_are_corrupt(stored: bytes) -> None:
    with pytest.raises(CorruptSnapshotError):
        Snapshot.from_json(stored)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("NaN", "data.state.a[0] is NaN, which is not JSON"),
        ("-Infinity", "data.state.a[0] is -Infinity, which is not JSON"),
        ("1e999", "data.state.a[0] is Infinity, which is not JSON"),
        (r'"\ud800"', "data.state.a[0] contains a lone surrogate"),
    ],
)
def test_what_pythons_json_writes_and_no_other_reads_is_named_with_its_path_and_not_called_corrupt(
    value: str, why: str
) -> None:
    stored = Snapshot("agent", "1.0", {"state": {"a": ["?"]}}, {}).to_json().replace(b'"?"', value.encode())
    with pytest.raises(SnapshotException, match=re.escape(why)) as refused:
        Snapshot.from_json(stored)
    assert not isinstance(refused.value, CorruptSnapshotError)
    with pytest.raises(CorruptSnapshotError):
        Snapshot.from_json(stored[:-1])


@pytest.mark.parametrize("name", ["data", "app_data"])
@pytest.mark.parametrize("value", [None, 5, [], "text"])
def test_data_that_is_no_dict_is_refused_at_once(name: str, value: Any) -> None:
    parts: dict[str, Any] = {"data": {}, "app_data": {}, name: value}
    with pytest.raises(SnapshotException, match=f"^{name} is {type(value).__name__}, not dict$"):
        Snapshot("agent", "1.0", **parts)


def test_marked_bytes_that_are_not_base64_are_corrupt() -> None:
    with pytest.raises(CorruptSnapshotError):
        Snapshot.from_json(b'{"data":{"x":{"__bytes_encoded__":true,"data":"*"}}}')


STRANDS = {
    "scope": "agent",
    "schema_version": "1.0",
    "created_at": "2026-05-04T03:02:01.000009Z",
    "data": {
        "messages": [
            {"role": "user", "content": [{"text": "Grüße 🎧"}], "tracking_id": "0f"},
            {
                "role": "assistant",
                "content": [
                    {"image": {"format": "png", "source": {"bytes": {"__bytes_encoded__": True, "data": "AAEC"}}}}
                ],
                "metadata": {"usage": {"inputTokens": 3}, "custom": {"bidi": {"kind": "text", "status": "complete"}}},
            },
        ],
        "state": {"price": 1.5},
        "conversation_manager_state": {"__name__": "SlidingWindowConversationManager", "removed_message_count": 0},
        "interrupt_state": {"interrupts": {}, "context": {}, "activated": False},
        "system_prompt": [{"text": "Be brief."}],
        "model_state": {},
    },
    "app_data": {},
}


def test_a_file_that_strands_wrote_opens_as_it_is() -> None:
    snapshot = Snapshot.from_json(json.dumps(STRANDS, ensure_ascii=False).encode())
    assert snapshot.data["messages"][1]["content"][0]["image"]["source"]["bytes"] == b"\x00\x01\x02"
    assert snapshot.created_at == "2026-05-04T03:02:01.000009Z"
    assert json.loads(snapshot.to_json()) == STRANDS
    assert read_parent_id(json.dumps(STRANDS).encode()) is None


def test_the_head_is_read_without_the_data() -> None:
    snapshot = Snapshot("multiAgent", "1.0", {"messages": [1]}, {}, "stamp")
    head = read_head(b"".join(encode_snapshot_parts(snapshot, parent_id="p-1")))
    assert (head.scope, head.schema_version, head.created_at, head.parent_id) == ("multiAgent", "1.0", "stamp", "p-1")
    with pytest.raises(CorruptSnapshotError):
        read_head(b'{"parent_id":7}')


def test_older_schemas_go_up_step_by_step_and_newer_ones_are_refused() -> None:
    upgrades = Upgrades("1.2")
    upgrades.register("0.9", "1.1", lambda old: {**old, "data": {"messages": old["messages"]}})
    upgrades.register("1.1", "1.2", lambda old: {**old, "data": {**old["data"], "state": {}}})
    new = upgrades.apply({"schema_version": "0.9", "messages": [1]})
    assert (new["schema_version"], new["data"]) == ("1.2", {"messages": [1], "state": {}})
    for version, why in (
        ("1.3", "newer version"),
        ("2.0", "newer version"),
        ("1.10", "newer version"),
        ("0.8", "no upgrade is registered"),
        ("one", "Unsupported snapshot schema version: 'one'. Current version: 1.2"),
        ("1.2.0", "Unsupported"),
        (None, "Unsupported"),
        (1.2, "Unsupported"),
    ):
        with pytest.raises(SnapshotException, match=why):
            upgrades.apply({"schema_version": version})


def test_an_upgrade_must_lead_upwards_and_return_an_envelope() -> None:
    upgrades = Upgrades("1.0")
    for wrong in (("1.0", "0.9"), ("0.9", "0.9"), ("0.9", "1.1"), ("x", "1.0"), ("0.9", "")):
        with pytest.raises(InvalidInputError):
            upgrades.register(*wrong, dict)
    upgrades.register("0.9", "1.0", lambda old: [])  # type: ignore[arg-type, return-value]
    with pytest.raises(SnapshotException, match="returned list"):
        upgrades.apply({"schema_version": "0.9"})
