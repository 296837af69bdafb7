"""Content blocks: what stands for a block, its dict form, and what is refused."""

import copy
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.content import (
    AudioDelta,
    BidiMessage,
    ImageBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    block_from,
    error_result,
    text_of,
)
from antiphon.errors import InvalidInputError, InvalidTypeError

PNG = {"bytes": b"\x89PNG"}
FORMS = [
    (TextBlock("Hi"), {"text": "Hi"}),
    (ImageBlock("png", PNG), {"image": {"format": "png", "source": PNG}}),
    (
        ImageBlock("jpeg", {"location": {"uri": "s3://x"}}),
        {"image": {"format": "jpeg", "source": {"location": {"uri": "s3://x"}}}},
    ),
    (AudioDelta("pcm", {"bytes": b"\0\0"}), {"audio_delta": {"format": "pcm", "source": {"bytes": b"\0\0"}}}),
    (
        ToolUseBlock("t1", "lights", {"on": True}),
        {"toolUse": {"toolUseId": "t1", "name": "lights", "input": {"on": True}}},
    ),
    (
        ToolResultBlock("t1", "success", [{"text": "on"}]),
        {"toolResult": {"toolUseId": "t1", "status": "success", "content": [{"text": "on"}]}},
    ),
]


@pytest.mark.parametrize(("block", "data"), FORMS, ids=lambda form: type(form).__name__)
def test_a_block_and_its_dict_form_stand_for_each_other(block, data):
    assert block.to_dict() == data
    assert block_from(data) == block
    assert block_from(block) is block


def test_a_string_stands_for_a_text_block():
    assert block_from("Hi") == TextBlock("Hi")
    assert block_from("") == TextBlock("")


@given(st.text(), st.sampled_from(["png", "jpeg", "gif", "webp"]), st.binary(max_size=8))
def test_any_text_and_any_bytes_come_back(text, kind, data):
    for block in (TextBlock(text), ImageBlock(kind, {"bytes": data}), AudioDelta("pcm", {"bytes": data})):
        assert block_from(block.to_dict()) == block


@pytest.mark.parametrize(("block", "data"), FORMS, ids=lambda form: type(form).__name__)
def test_a_block_is_a_value(block, data):
    again = copy.deepcopy(block)
    assert again == block
    field = dataclasses.fields(block)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(block, field, "other")


@pytest.mark.parametrize("data", [5, None, b"sound", ["Hi"], ("text", "Hi"), {"Hi"}, 1.5, TextBlock], ids=repr)
def test_what_is_no_block_is_a_type_error_that_names_its_type(data):
    with pytest.raises(InvalidTypeError, match=r"invalid input .* expected a string, TextBlock"):
        block_from(data)


@pytest.mark.parametrize(
    "data",
    [{}, {"text": "a", "image": {}}, {"video": {}}, {"Text": "a"}, {5: "a"}, {None: 1}, {"audio": b""}],
    ids=repr,
)
def test_a_dict_with_not_exactly_one_known_key_is_refused_by_its_keys(data):
    with pytest.raises(InvalidInputError, match=r"invalid input .* expected one"):
        block_from(data)


MALFORMED = [
    *({"text": value} for value in (7, None, b"Hi", ["Hi"])),
    *(
        {kind: value}
        for kind in ("image", "audio_delta")
        for value in (
            *(None, "png", [], {}, {"format": "png"}, {"source": PNG}),
            {"format": 5, "source": PNG},
            {"format": "png", "source": b"\x89PNG"},
            {"format": "png", "source": None},
            {"format": "png", "source": {"bytes": "text"}},
            {"format": "png", "source": {"bytes": bytearray(b"x")}},
            {"format": "png", "source": PNG, "more": 1},
        )
    ),
    *(
        {kind: value}
        for kind in ("toolUse", "toolResult")
        for value in (
            None,
            5,
            "t1",
            [],
            {},
            {"toolUseId": "t1"},
            {"toolUseId": "t1", "name": "x"},
            {"status": "success"},
        )
    ),
]


@pytest.mark.parametrize("data", MALFORMED, ids=repr)
def test_a_malformed_block_is_refused_as_a_type_or_value_that_cannot_be_used(data):
    with pytest.raises((InvalidTypeError, InvalidInputError)):
        block_from(data)


@pytest.mark.parametrize("kind", [ImageBlock, AudioDelta])
@pytest.mark.parametrize("arguments", [(5, PNG), ("png", None), ("png", b"x"), ("png", {"bytes": "x"})], ids=repr)
def test_malformed_media_are_refused_when_they_are_made(kind, arguments):
    with pytest.raises(InvalidTypeError):
        kind(*arguments)


def test_an_error_about_media_does_not_carry_all_of_them():
    with pytest.raises(InvalidTypeError) as refused:
        AudioDelta("pcm", [b"\1" * 100_000])
    assert len(str(refused.value)) < 500


def test_the_sound_of_a_piece_is_its_bytes():
    assert AudioDelta("pcm", {"bytes": b"\1\0"}).audio == b"\1\0"
    assert AudioDelta("pcm", {}).audio == b""


def test_a_message_for_a_live_model_is_a_list_of_blocks():
    message = BidiMessage([TextBlock("Look:"), ImageBlock("png", PNG)])
    assert message.to_dict() == {"content": [{"text": "Look:"}, {"image": {"format": "png", "source": PNG}}]}
    assert BidiMessage().content == []


def test_the_words_of_a_message_are_its_texts_a_line_each():
    content = [{"text": "one"}, {"image": {"format": "png", "source": PNG}}, {"text": "two"}]
    assert text_of({"role": "user", "content": content}) == "one\ntwo"
    assert text_of({"role": "user", "content": []}) == ""


def test_the_result_of_a_call_that_failed_says_why():
    assert error_result("t1", "no seats") == {"toolUseId": "t1", "status": "error", "content": [{"text": "no seats"}]}
