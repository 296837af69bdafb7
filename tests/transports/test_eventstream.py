"""The event-stream framing of AWS, held against botocore's reader, and its laws."""

import struct
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID
from zlib import crc32

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import TransportError
from antiphon.transports.eventstream import Byte, Decoder, Long, Message, Short, decode_headers, encode_message

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = st.integers(-(2**45), 2**47).map(lambda ms: EPOCH + timedelta(milliseconds=ms))
VALUES = st.one_of(
    st.text(max_size=40),
    st.binary(max_size=40),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**7), 2**7 - 1).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**63), 2**63 - 1).map(Long),
    st.uuids(),
    TIMES,
)
NAMES = st.text(min_size=1, max_size=40)
MESSAGES = st.builds(Message, st.dictionaries(NAMES, VALUES, max_size=6), st.binary(max_size=200))


def encode(messages):
    return b"".join(encode_message(message.headers, message.payload) for message in messages)


def read(pieces):
    """The messages that come, and the text of the error after them if there is one."""
    decoder, found = Decoder(), []
    try:
        for piece in pieces:
            found += decoder.feed(piece)
        decoder.end()
    except TransportError as error:
        return found, str(error)
    return found, None


def cut(raw, places):
    return [
        raw[start:end] for start, end in pairwise([0, *sorted(place % (len(raw) + 1) for place in places), len(raw)])
    ]


@given(st.lists(MESSAGES, max_size=4), st.lists(st.integers(0, 2000), max_size=8))
def test_what_was_encoded_is_decoded_however_the_bytes_are_cut(messages, places):
    assert read(cut(encode(messages), places)) == (messages, None)


@given(MESSAGES)
def test_encoding_what_was_decoded_gives_the_same_bytes(message):
    raw = encode([message])
    [found] = Decoder().feed(raw)
    assert encode_message(found.headers, found.payload) == raw


@given(MESSAGES)
def test_botocore_reads_what_is_encoded(message):
    buffer = EventStreamBuffer()
    buffer.add_data(encode([message]))
    [found] = list(buffer)
    assert found.payload == message.payload
    wanted = {
        name: (value - EPOCH) // timedelta(milliseconds=1)
        if isinstance(value, datetime)
        else value.bytes
        if isinstance(value, UUID)
        else value
        for name, value in message.headers.items()
    }
    assert found.headers == wanted


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.data())
def test_a_bit_that_flips_is_an_error_and_what_came_before_it_is_given(messages, data):
    raw = bytearray(encode(messages))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= 1 << data.draw(st.integers(0, 7))
    ends = [len(encode(messages[: count + 1])) for count in range(len(messages))]
    found, error = read([bytes(raw)])
    assert error is not None
    assert found == messages[: sum(end <= place for end in ends)]
    assert read([bytes([byte]) for byte in raw]) == (found, error)


@given(st.binary(max_size=400))
def test_bytes_of_any_kind_give_an_error_of_ours_or_nothing(raw):
    whole = read([raw])
    assert whole == read([raw[:7], raw[7:]])


def test_a_wire_that_ends_within_a_message_says_so():
    found, error = read([encode_message({":event-type": "chunk"}, b"{}")[:-1]])
    assert (found, error) == ([], "the event stream ended within a message, after 37 bytes of it")


@pytest.mark.parametrize("lengths", [(16, 1), (15, 0), (2**31, 0), (2**20, 2**19), (0, 0)])
def test_lengths_that_cannot_be_are_refused_before_their_bytes_are_waited_for(lengths):
    prelude = struct.pack("!II", *lengths)
    with pytest.raises(TransportError, match="cannot have"):
        Decoder().feed(prelude + struct.pack("!I", crc32(prelude)))


def test_a_broken_decoder_stays_broken():
    decoder = Decoder()
    with pytest.raises(TransportError, match="checksum"):
        decoder.feed(b"HTTP/1.1 200 OK\r\n")
    with pytest.raises(TransportError, match="checksum"):
        decoder.feed(encode_message({}, b""))


@pytest.mark.parametrize(
    "raw",
    [b"\x01a", b"\x01a\x07\x00\x05abc", b"\x05ab", b"\x01a\x0a", b"\x01a\x04\x00", b"\x01a\x00\x01a\x01", b"\x00\x00"],
    ids=["no type", "text cut", "name cut", "unknown type", "number cut", "twice", "no name"],
)
def test_headers_that_cannot_be_read_are_refused(raw):
    with pytest.raises(TransportError):
        decode_headers(raw)


@pytest.mark.parametrize(
    "headers",
    [
        {"": "x"},
        {"x" * 256: "x"},
        {"x": "y" * 2**15},
        {"x": Byte(200)},
        {"x": Long(2**63)},
        {"x": datetime(2026, 1, 1)},  # noqa: DTZ001
    ],
)
def test_what_the_format_cannot_say_is_refused(headers):
    with pytest.raises(ValueError):
        encode_message(headers)


def test_a_value_of_a_type_that_no_header_has_is_refused():
    with pytest.raises(TypeError, match=r"cannot hold 1\.5"):
        encode_message({"x": 1.5})
