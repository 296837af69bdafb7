"""Reading what Gemini Live sends: JSON whose shape nobody can be sure of. Pure."""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64
from functools import lru_cache
from typing import Any, cast

import msgspec

from antiphon.errors import ModelProtocolError
from antiphon.events import BidiUsageEvent
from antiphon.models.google.live_setup import camel_keys
from antiphon.transports.base import Frame

OUTPUT_RATE = 24000
"""The rate of the model's sound, in Hz."""


def decoded(frame: Frame) -> dict[str, Any]:
    """A message: JSON, an object, its names in camel case.

    Raises:
        ModelProtocolError: If it is not.
    """
    try:
        value = msgspec.json.decode(frame)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ModelProtocolError(f"Gemini Live sent a frame that is not JSON: {frame[:80]!r}") from error
    if not isinstance(value, dict):
        raise ModelProtocolError(f"Gemini Live sent JSON that is not an object: {frame[:80]!r}")
    # Base64 has no underscore: sound is not copied.
    snake = b"_" in frame if isinstance(frame, bytes) else "_" in frame
    return cast("dict[str, Any]", camel_keys(value) if snake else value)


def object_at(holder: dict[str, Any], key: str) -> dict[str, Any]:
    """A field that is an object; empty if it is not there.

    Raises:
        ModelProtocolError: If it is something else.
    """
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ModelProtocolError(f"Gemini Live sent {key!r} that is not an object: {value!r}"[:300])
    return cast("dict[str, Any]", value)


def objects_at(holder: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """A field that is a list of objects; empty if it is not there.

    Raises:
        ModelProtocolError: If it is something else.
    """
    value = holder.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in cast("list[object]", value)):
        raise ModelProtocolError(f"Gemini Live sent {key!r} that is not a list of objects: {value!r}"[:300])
    return cast("list[dict[str, Any]]", value)


def text_at(holder: dict[str, Any], key: str) -> str:
    """A field that is a text; empty if it is not there.

    Raises:
        ModelProtocolError: If it is something else.
    """
    value = holder.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ModelProtocolError(f"Gemini Live sent {key!r} that is not a text: {value!r}"[:300])
    return value


def bytes_at(data: dict[str, Any]) -> bytes:
    """The bytes of an `inlineData`.

    Raises:
        ModelProtocolError: If they are not base64.
    """
    try:
        return a2b_base64(text_at(data, "data"))
    except (Base64Error, ValueError) as error:
        raise ModelProtocolError("Gemini Live sent sound that is not base64") from error


@lru_cache(maxsize=16)
def pcm_rate(mime: str) -> int | None:
    """The rate of PCM, in Hz; None for what is no PCM.

    >>> pcm_rate("audio/pcm;rate=24000"), pcm_rate("audio/pcm"), pcm_rate("image/png")
    (24000, 24000, None)
    """
    kind, _, rest = mime.partition(";")
    if kind.strip().lower() not in {"audio/pcm", "audio/l16"}:
        return None
    rate = rest.partition("rate=")[2].partition(";")[0].strip()
    return int(rate) if rate.isdecimal() and int(rate) > 0 else OUTPUT_RATE


def arguments(args: Any) -> Any:
    """A call's arguments; those that were encoded twice are decoded."""
    if args is None:
        return {}
    if isinstance(args, str):
        try:
            decoded = msgspec.json.decode(args)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return args
        return cast("Any", decoded) if isinstance(decoded, dict) else args
    return args


def seconds(value: Any) -> float:
    """A duration of protobuf's JSON, such as `"50s"`.

    >>> seconds("50s"), seconds("1.5s"), seconds(None)
    (50.0, 1.5, 0.0)
    """
    try:
        return max(0.0, float(str(value).removesuffix("s")))
    except ValueError:
        return 0.0


def speech_starts(message: dict[str, Any]) -> bool:
    """Whether the service says that the user begins to speak."""
    activity = object_at(message, "voiceActivity").get("voiceActivityType")
    signal = object_at(message, "voiceActivityDetectionSignal").get("vadSignalType")
    return activity == "ACTIVITY_START" or signal == "VAD_SIGNAL_TYPE_SOS"


def _count(usage: dict[str, Any], *keys: str) -> int:
    return sum(value for key in keys if isinstance(value := usage.get(key), int))


def usage_event(usage: dict[str, Any]) -> BidiUsageEvent:
    """What a `usageMetadata` tells of tokens."""
    read = _count(usage, "promptTokenCount", "toolUsePromptTokenCount")
    made = _count(usage, "responseTokenCount", "thoughtsTokenCount")
    spent = {"cached": _count(usage, "cachedContentTokenCount")} if "cachedContentTokenCount" in usage else {}
    thought = {"thoughts": _count(usage, "thoughtsTokenCount")} if "thoughtsTokenCount" in usage else {}
    return BidiUsageEvent(
        input_tokens=read,
        output_tokens=made,
        total_tokens=_count(usage, "totalTokenCount") or read + made,
        input_token_details=_by_kind(usage, "promptTokensDetails") | spent or None,
        output_token_details=_by_kind(usage, "responseTokensDetails") | thought or None,
    )


def _by_kind(usage: dict[str, Any], key: str) -> dict[str, Any]:
    return {text_at(entry, "modality").lower(): _count(entry, "tokenCount") for entry in objects_at(usage, key)}
