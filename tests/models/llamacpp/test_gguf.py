"""The head of a GGUF file."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import ModelError, ModelNotFoundError, ModelRequestError
from antiphon.models.llamacpp.gguf import GgufFacts, read_facts

KINDS = {"B": 0, "b": 1, "H": 2, "h": 3, "I": 4, "i": 5, "f": 6, "?": 7, "Q": 10, "q": 11, "d": 12}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key, layout, *values):
    """One entry: `s` is a text, `[x` an array of x, anything else a number."""
    if layout == "s":
        return text(key) + struct.pack("<I", 8) + text(values[0])
    if layout.startswith("["):
        kind = layout[1:]
        number = 8 if kind == "s" else KINDS[kind]
        packed = b"".join(text(value) if kind == "s" else struct.pack(f"<{kind}", value) for value in values)
        return text(key) + struct.pack("<IIQ", 9, number, len(values)) + packed
    return text(key) + struct.pack("<I", KINDS[layout]) + struct.pack(f"<{layout}", *values)


def head(*entries, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(entries)) + b"".join(entries)


GOOD = head(
    entry("general.architecture", "s", "llama"),
    entry("tokenizer.tokens", "[s", "a", "bc", ""),
    entry("tokenizer.scores", "[f", 0.5, 1.5),
    entry("general.alignment", "I", 32),
    entry("llama.context_length", "Q", 2048),
    entry("general.name", "s", "Small Talker"),
    entry("some.flag", "?", True),
    entry("tokenizer.chat_template", "s", "{% for m in messages %}{% if tools %}{% endif %}{% endfor %}"),
)


def test_what_matters_is_found_between_everything_else(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(GOOD)
    facts = read_facts(str(file))
    assert (facts.name, facts.context_length, facts.takes_tools) == ("Small Talker", 2048, True)


def test_a_model_that_says_nothing_of_itself_is_taken(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(head(version=2))
    facts = read_facts(str(file))
    assert facts == GgufFacts(name="", context_length=None, chat_template="")
    assert not facts.takes_tools


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ModelNotFoundError, match="directory"):
        read_facts(str(tmp_path))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (head(version=9), "version is 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40), "entries"),
        (head(text("key") + struct.pack("<IQ", 8, 2**50)), "a text of"),
        (head(text("key") + struct.pack("<I", 77)), "unknown type 77"),
        (head(text("key") + struct.pack("<IIQ", 9, 77, 1)), "array of the unknown type 77"),
    ],
)
def test_heads_that_cannot_be_are_refused(tmp_path, raw, words):
    file = tmp_path / "model.gguf"
    file.write_bytes(raw)
    with pytest.raises(ModelRequestError, match=words):
        read_facts(str(file))


@given(st.integers(0, len(GOOD) - 1), st.binary(max_size=4))
def test_a_damaged_head_is_an_error_of_ours_or_reads_as_something(tmp_path_factory, place, instead):
    file = tmp_path_factory.getbasetemp() / "damaged.gguf"
    file.write_bytes(GOOD[:place] + instead + GOOD[place + len(instead) :])
    with suppress(ModelError):
        read_facts(str(file))
    file.write_bytes(GOOD[:place])
    with suppress(ModelError):
        read_facts(str(file))
