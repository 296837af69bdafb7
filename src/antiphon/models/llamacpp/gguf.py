"""What a GGUF file says of its model, read without loading it.

Layout: "GGUF" in the documentation of ggml (ggml/docs/gguf.md): little-endian; magic, version, number of tensors, number of
entries; then the entries, each a key, a type and a value.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

from antiphon.errors import ModelNotFoundError, ModelRequestError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST_TEXT = 16 * 1024 * 1024
_MOST_ENTRIES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFacts:
    """A model, as its file describes it.

    Attributes:
        name: What its makers call it; empty where they do not say.
        context_length: Tokens that it was trained to read; None where the file does not say.
        chat_template: The Jinja template that makes a prompt of messages; empty where there is none.
    """

    name: str
    context_length: int | None
    chat_template: str

    @property
    def takes_tools(self) -> bool:
        """Whether the template has a place for tools: one without it drops them silently."""
        return template_takes_tools(self.chat_template)


def template_takes_tools(template: str) -> bool:
    """Whether a Jinja chat template looks at `tools`."""
    return "tools" in template


def read_facts(path: str) -> GgufFacts:
    """Read the head of a file.

    Raises:
        ModelNotFoundError: If the file cannot be opened.
        ModelRequestError: If it is no GGUF file, or its head is damaged.
    """
    try:
        with open(path, "rb") as file:
            entries = _entries(file)
    except OSError as error:
        raise ModelNotFoundError(f"the model file {path!r} cannot be read: {error.strerror or error}") from error
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise ModelRequestError(f"{path!r} is no GGUF file that can be used: {error}") from error
    architecture = entries.get("general.architecture", "")
    length = entries.get(f"{architecture}.context_length")
    return GgufFacts(
        name=str(entries.get("general.name", "")),
        context_length=length if isinstance(length, int) and length > 0 else None,
        chat_template=str(entries.get("tokenizer.chat_template", "")),
    )


def _entries(file: BinaryIO) -> dict[str, object]:
    """The entries that are one value; arrays are passed over."""
    if (magic := file.read(4)) != _MAGIC:
        raise ValueError(f"it begins with {magic!r}, not {_MAGIC!r}")
    version, _, count = _numbers(file, "<IQQ")
    if version not in _VERSIONS:
        raise ValueError(f"its version is {version}; known are {_VERSIONS}")
    if count > _MOST_ENTRIES:
        raise ValueError(f"it claims to have {count} entries")
    entries: dict[str, object] = {}
    for _ in range(count):
        key = _text(file)
        (kind,) = _numbers(file, "<I")
        if kind == _ARRAY:
            _pass_array(file)
        else:
            entries[key] = _value(file, kind)
    return entries


def _numbers(file: BinaryIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _text(file: BinaryIO) -> str:
    (length,) = _numbers(file, "<Q")
    if length > _LONGEST_TEXT:
        raise ValueError(f"it claims to have a text of {length} bytes")
    raw = file.read(length)
    if len(raw) != length:
        raise ValueError("it ends within its head")
    return raw.decode("utf-8", "replace")


def _value(file: BinaryIO, kind: int) -> object:
    if kind == _STRING:
        return _text(file)
    if kind not in _FORMATS:
        raise ValueError(f"it has an entry of the unknown type {kind}")
    return _numbers(file, f"<{_FORMATS[kind]}")[0]


def _pass_array(file: BinaryIO) -> None:
    kind, length = _numbers(file, "<IQ")
    if kind == _STRING:
        for _ in range(length):
            file.seek(_numbers(file, "<Q")[0], 1)
    elif kind in _FORMATS:
        file.seek(length * struct.calcsize(f"<{_FORMATS[kind]}"), 1)
    else:
        raise ValueError(f"it has an array of the unknown type {kind}")
