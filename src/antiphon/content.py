"""Messages and content blocks.

A message is a plain dict, `{"role": "user" | "assistant", "content": [blocks], "metadata"?: {...}}`, with blocks in the
shape of Amazon Bedrock's Converse API. The dataclasses below are a typed way to write single blocks; `to_dict()` gives the
plain form, `block_from` the way back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from reprlib import repr as short_repr
from typing import Any, Literal, NotRequired, TypedDict, cast

from antiphon.errors import InvalidInputError, InvalidTypeError

Role = Literal["user", "assistant"]
ImageFormat = Literal["png", "jpeg", "gif", "webp"]
ToolStatus = Literal["success", "error"]


class ToolUse(TypedDict):
    """A model's call of a tool."""

    toolUseId: str
    name: str
    input: Any


class ToolResult(TypedDict):
    """What a tool call came to; `content` holds blocks such as `{"text": ...}`, `{"json": ...}` and `{"image": ...}`."""

    toolUseId: str
    status: ToolStatus
    content: list[dict[str, Any]]


class ToolSpec(TypedDict):
    """What a model is told of a tool; `inputSchema` is `{"json": <JSON Schema of an object>}`."""

    name: str
    description: str
    inputSchema: dict[str, Any]
    outputSchema: NotRequired[dict[str, Any]]


class ImageSource(TypedDict, total=False):
    """An image's bytes (or the place where a provider finds it)."""

    bytes: bytes
    location: dict[str, Any]


class ImageContent(TypedDict):
    """An image: its format and its source."""

    format: str
    source: ImageSource


class ContentBlock(TypedDict, total=False):
    """One block; exactly one of the kinds is set."""

    text: str
    image: ImageContent
    document: dict[str, Any]
    video: dict[str, Any]
    toolUse: ToolUse
    toolResult: ToolResult
    reasoningContent: dict[str, Any]
    guardContent: dict[str, Any]
    citationsContent: dict[str, Any]
    cachePoint: dict[str, Any]


class SystemContentBlock(TypedDict, total=False):
    """One block of a system prompt."""

    text: str
    cachePoint: dict[str, Any]
    guardContent: dict[str, Any]


class MessageMetadata(TypedDict, total=False):
    """What is known of a message beside its words. Models never see it.

    Attributes:
        interrupted: The listener heard only `content`; the rest was cut off.
        generated_text: What the model had made, where the listener heard less.
        heard_ms: Sound of the response that was played, in milliseconds.
        response_id: The response that this belongs to.
        usage: Tokens, where the provider tells.
    """

    interrupted: bool
    generated_text: str
    heard_ms: float
    response_id: str
    kind: str
    usage: dict[str, Any]
    custom: dict[str, Any]


class Message(TypedDict):
    """One message of a conversation."""

    role: Role
    content: list[ContentBlock]
    metadata: NotRequired[MessageMetadata]
    tracking_id: NotRequired[str]


Messages = list[Message]


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Text."""

    text: str

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.text), str):
            raise InvalidTypeError(f"text={self.text!r} is not a string")

    def to_dict(self) -> ContentBlock:
        return {"text": self.text}


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """An image.

    Attributes:
        format: `png`, `jpeg`, `gif` or `webp`.
        source: `{"bytes": ...}`.
    """

    format: str
    source: ImageSource

    def __post_init__(self) -> None:
        _check_media("image", self.format, self.source)

    def to_dict(self) -> ContentBlock:
        return {"image": {"format": self.format, "source": self.source}}


@dataclass(frozen=True, slots=True)
class AudioDelta:
    """A piece of sound on its way to the model; it is never part of the history.

    Attributes:
        format: `pcm`: 16-bit little-endian, at the rate the model asks for.
        source: `{"bytes": ...}`.
    """

    format: str
    source: ImageSource

    def __post_init__(self) -> None:
        _check_media("audio_delta", self.format, self.source)

    @property
    def audio(self) -> bytes:
        """The sound itself."""
        return self.source.get("bytes", b"")

    def to_dict(self) -> dict[str, Any]:
        return {"audio_delta": {"format": self.format, "source": self.source}}


def _check_media(what: str, kind: object, source: object) -> None:
    if not isinstance(kind, str):
        raise InvalidTypeError(f"{what}: format={kind!r} is not a string")
    if not isinstance(source, dict):
        raise InvalidTypeError(f'{what}: source={short_repr(source)} is not a dict such as {{"bytes": ...}}')
    data = cast("dict[str, object]", source).get("bytes", b"")
    if not isinstance(data, bytes):
        raise InvalidTypeError(f"{what}: source['bytes'] is {type(data).__name__}, not bytes")


@dataclass(frozen=True, slots=True)
class ToolUseBlock:
    """A model's call of a tool."""

    tool_use_id: str
    name: str
    input: Any

    def to_dict(self) -> ContentBlock:
        return {"toolUse": {"toolUseId": self.tool_use_id, "name": self.name, "input": self.input}}


@dataclass(frozen=True, slots=True)
class ToolResultBlock:
    """What a tool call came to."""

    tool_use_id: str
    status: ToolStatus
    content: list[dict[str, Any]]

    def to_dict(self) -> ContentBlock:
        return {"toolResult": {"toolUseId": self.tool_use_id, "status": self.status, "content": self.content}}


Block = TextBlock | ImageBlock | ToolUseBlock | ToolResultBlock


@dataclass(frozen=True, slots=True)
class BidiMessage:
    """Complete content on its way to a live model: text, images, or the results of tools."""

    content: list[Block] = field(default_factory=list[Block])

    def to_dict(self) -> dict[str, Any]:
        return {"content": [block.to_dict() for block in self.content]}


class AudioDeltaData(TypedDict):
    """The dict form of `AudioDelta`."""

    audio_delta: dict[str, Any]


BidiUserContentBlockData = ContentBlock  # one `text` or `image` key
BidiContentDeltaData = AudioDeltaData
BidiUserContent = str | TextBlock | ImageBlock | BidiUserContentBlockData
BidiAgentInput = (
    str
    | TextBlock
    | ImageBlock
    | AudioDelta
    | BidiUserContentBlockData
    | BidiContentDeltaData
    | list[str]
    | list[TextBlock]
    | list[ImageBlock]
    | list[TextBlock | ImageBlock]
    | list[str | TextBlock | ImageBlock | BidiUserContentBlockData]
    | list[dict[str, Any]]
)


def block_from(data: object) -> Block | AudioDelta:
    """The block that a string, a block or a dict with exactly one supported key stands for.

    Raises:
        InvalidTypeError: If `data` is something else, or a media dict is malformed.
        InvalidInputError: If a dict has not exactly one supported key.
    """
    if isinstance(data, (TextBlock, ImageBlock, AudioDelta, ToolUseBlock, ToolResultBlock)):
        return data
    if isinstance(data, str):
        return TextBlock(data)
    if not isinstance(data, dict):
        raise InvalidTypeError(
            f"invalid input | expected a string, TextBlock, ImageBlock or AudioDelta, got {type(data).__name__}"
        )
    entry = cast("dict[str, Any]", data)
    keys = list(entry)
    if len(keys) != 1 or keys[0] not in _READERS:
        raise InvalidInputError(f"invalid input | expected one of the keys {sorted(_READERS)}, got {keys!r}")
    block: Block | AudioDelta = _READERS[keys[0]](entry[keys[0]])
    return block


def _media(kind: type[ImageBlock | AudioDelta], value: Any) -> ImageBlock | AudioDelta:
    if not isinstance(value, dict):
        raise InvalidTypeError(
            f"invalid input | {kind.__name__} wants a dict of format and source, got {short_repr(value)}"
        )
    fields = cast("dict[str, Any]", value)
    if set(fields) != {"format", "source"}:
        raise InvalidTypeError(f"invalid input | {kind.__name__} wants format and source, got {sorted(fields)!r}")
    return kind(**fields)


def _tool_use(value: Any) -> ToolUseBlock:
    fields = _fields("toolUse", value, ("toolUseId", "name", "input"))
    return ToolUseBlock(fields["toolUseId"], fields["name"], fields["input"])


def _tool_result(value: Any) -> ToolResultBlock:
    fields = _fields("toolResult", value, ("toolUseId", "status", "content"))
    return ToolResultBlock(fields["toolUseId"], fields["status"], fields["content"])


def _fields(kind: str, value: object, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidTypeError(f"invalid input | {kind} wants a dict of {', '.join(names)}, got {short_repr(value)}")
    fields = cast("dict[str, Any]", value)
    if missing := [name for name in names if name not in fields]:
        raise InvalidTypeError(f"invalid input | {kind} wants {', '.join(names)}; it has no {missing[0]!r}")
    return fields


_READERS: dict[str, Any] = {
    "text": TextBlock,
    "image": partial(_media, ImageBlock),
    "audio_delta": partial(_media, AudioDelta),
    "toolUse": _tool_use,
    "toolResult": _tool_result,
}


def text_of(message: Message) -> str:
    """The words of a message: its text blocks, joined by newlines."""
    return "\n".join(block["text"] for block in message["content"] if "text" in block)


def error_result(tool_use_id: str, text: str) -> ToolResult:
    """The result of a call that failed, was refused or was cut short."""
    return {"toolUseId": tool_use_id, "status": "error", "content": [{"text": text}]}
