"""MessageLedger: whatever was done to the messages, it knows what they are and encodes only what is new."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import SnapshotException
from antiphon.jsonable import copy_json, decode_json, encode_json
from antiphon.snapshot import MessageLedger


def message(text: object) -> dict[str, Any]:
    return {"role": "user", "content": [{"text": f"message {text}"}], "metadata": {"heard_ms": 1.0}}


def conversation(count: int) -> list[dict[str, Any]]:
    return [message(number) for number in range(count)]


def encoded_by(ledger: MessageLedger, messages: list[Any]) -> int:
    before = ledger.messages_encoded
    ledger.update_at_once(messages)
    assert ledger.encoded == [encode_json(copy_json(each)) for each in messages]
    return ledger.messages_encoded - before


operations = st.sampled_from(["append", "edit", "drop first", "drop", "insert", "swap", "copy", "replace", "summarise"])


@given(st.lists(st.lists(st.tuples(operations, st.integers(0, 30)), max_size=4), max_size=8))
def test_after_any_history_the_encoded_messages_are_the_messages(rounds: list[list[tuple[str, int]]]) -> None:
    ledger, messages, fresh = MessageLedger(), list[Any](), 0
    for changes in rounds:
        for operation, place in changes:
            fresh += 1
            at = place % len(messages) if messages else 0
            match operation:
                case "append":
                    messages.append(message(fresh))
                case "insert":
                    messages.insert(at, message(fresh))
                case "replace":
                    messages[:] = conversation(place)
                case "copy":
                    messages = copy.deepcopy(messages)
                case "edit" if messages:
                    messages[at]["content"][0]["text"] += "!"
                case "drop first" if messages:
                    del messages[0]
                case "drop" if messages:
                    del messages[at : at + 3]
                case "swap" if messages:
                    messages[0], messages[at] = messages[at], messages[0]
                case "summarise" if messages:
                    messages[:at] = [message("summary")]
                case _:
                    pass
        encoded_by(ledger, messages)
        assert encoded_by(ledger, messages) == 0


def test_only_what_is_new_is_encoded() -> None:
    ledger, messages = MessageLedger(), conversation(1000)
    assert encoded_by(ledger, messages) == 1000
    assert encoded_by(ledger, copy.deepcopy(messages)) == 0
    messages.append(message("new"))
    assert encoded_by(ledger, messages) == 1
    messages[500]["content"][0]["text"] = "edited"
    assert encoded_by(ledger, messages) == 1
    messages = [*messages[2:], message("a"), message("b")]  # a sliding window
    assert encoded_by(ledger, messages) == 2
    messages[:600] = [message("summary")]
    assert encoded_by(ledger, messages) == 1
    messages.insert(100, message("inserted"))
    assert encoded_by(ledger, messages) == 1
    del messages[50:60]
    assert encoded_by(ledger, messages) == 0
    for place in range(0, 300, 50):
        messages[place]["content"][0]["text"] = f"edit {place}"
    assert encoded_by(ledger, messages) == 6
    del messages[-10:]
    assert encoded_by(ledger, messages) == 0
    assert encoded_by(ledger, []) == 0
    ledger.forget()
    assert encoded_by(ledger, messages) == len(messages)


@pytest.mark.parametrize("value", [1, 1.0, True, -0.0, 0.0, 0, False, "1", b"1", [1], {"a": 1}, None], ids=repr)
def test_numbers_are_compared_with_their_type_and_bits(value: Any) -> None:
    ledger = MessageLedger()
    for other in (1, 1.0, True, -0.0, 0.0, 0, False, "1", b"1", [1], {"a": 1}, None):
        ledger.update_at_once([{"x": [value]}])
        same = encode_json([value]) == encode_json([other])
        assert encoded_by(ledger, [{"x": [other]}]) == (0 if same else 1)


def test_an_edit_in_place_after_the_save_does_not_reach_the_ledger() -> None:
    ledger, messages = MessageLedger(), conversation(3)
    ledger.update_at_once(messages)
    before = list(ledger.encoded)
    messages[1]["metadata"]["heard_ms"] = 2.0
    assert ledger.encoded == before
    assert encoded_by(ledger, messages) == 1


def test_a_message_that_cannot_be_stored_is_named_and_leaves_the_ledger_as_it_was() -> None:
    ledger, messages = MessageLedger(), conversation(3)
    ledger.update_at_once(messages)
    before = list(ledger.encoded)
    messages[2]["metadata"]["heard_ms"] = float("nan")
    messages[0]["content"][0]["text"] = "edited"
    with pytest.raises(SnapshotException, match=r"data\.messages\[2\]\.metadata\.heard_ms is NaN"):
        ledger.update_at_once(messages)
    assert ledger.encoded == before
    messages[2]["metadata"]["heard_ms"] = 1.0
    assert encoded_by(ledger, messages) == 1


def test_a_value_that_refuses_to_be_compared_is_refused_by_its_path() -> None:
    class Array:
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value of an array is ambiguous")

        __hash__ = None  # type: ignore[assignment]

    ledger, messages = MessageLedger(), conversation(3)
    ledger.update_at_once(messages)
    messages[1]["content"][0]["text"] = Array()
    with pytest.raises(SnapshotException, match=r"data\.messages\[1\]\.content\[0\]\.text is .*Array"):
        ledger.update_at_once(messages)


def test_long_work_is_sliced_and_messages_appended_meanwhile_belong_to_the_next_update() -> None:
    ledger, messages = MessageLedger(), conversation(10_000)
    steps = 0
    for _ in ledger.update(messages):
        assert ledger.messages_encoded == 0 or len(ledger.encoded) == 10_000  # all at once
        steps += 1
        if steps == 1:
            messages.append(message("late"))
    assert steps >= 100
    assert len(ledger.encoded) == 10_000
    assert sum(1 for _ in ledger.update(messages)) >= 5
    assert ledger.messages_encoded == 10_001
    assert decode_json(ledger.encoded[-1]) == message("late")
