"""What a session is told to be: configuration of the model, checked, as the provider's `session`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

from antiphon.content import ToolSpec
from antiphon.errors import InvalidInputError, InvalidTypeError
from antiphon.models.openai.realtime_errors import check_duration
from antiphon.models.openai.realtime_sound import SoundFormat, sound_format
from antiphon.models.schemas import object_schema

LONGEST_SESSION_S = 3000.0
"""The provider ends a session after 60 minutes, without a warning; this leaves time to open another one in good order."""
RESTART_MARGIN_S = 300.0
"""How much earlier a restart is tried at a moment when nobody speaks."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration that can be used.

    Attributes:
        session: The provider's `session`, but for the instructions and the tools.
        tools: Tools that `params` adds, such as MCP servers of the provider's own.
        hears: What the microphone gives.
        speaks: What the loudspeaker takes.
    """

    session: dict[str, Any]
    tools: list[Any]
    hears: SoundFormat
    speaks: SoundFormat

    def told(self, system_prompt: str | None, tools: list[ToolSpec]) -> dict[str, Any]:
        """The whole `session`, for `session.update`."""
        session = deepcopy(self.session)
        if system_prompt:
            session["instructions"] = system_prompt
        session["tools"] = [*map(_function, tools), *deepcopy(self.tools)]
        return session


def settings(config: Mapping[str, Any]) -> Settings:
    """Check a model's configuration: `model_id, transcription_model_id, voice, timeout_s, audio, params, connection`.

    Raises:
        InvalidInputError: If a value cannot be used.
        InvalidTypeError: If one is of the wrong type.
        AudioFormatError: If sound cannot be had in that format.
    """
    for name in ("model_id", "voice"):
        if not isinstance(config[name], str) or not config[name].strip():
            raise InvalidInputError(f"{name}={config[name]!r} is not a name")
    check_duration(config["timeout_s"], LONGEST_SESSION_S)
    params, audio = _dict("params", config["params"]), _dict("audio", config["audio"])
    heard, spoken = _inner(params, "input"), _inner(params, "output")
    hears = sound_format("input", _dict("audio['input']", audio.get("input")), _dict("format", heard.get("format")))
    speaks = sound_format(
        "output", _dict("audio['output']", audio.get("output")), _dict("format", spoken.get("format"))
    )
    transcribed = config["transcription_model_id"]
    if transcribed is not None and (not isinstance(transcribed, str) or not transcribed.strip()):
        raise InvalidInputError(f"transcription_model_id={transcribed!r} is neither a name nor None")
    session: dict[str, Any] = {
        "type": "realtime",
        "output_modalities": ["audio"],
        "audio": {
            "input": {
                "format": hears.to_wire(),
                "transcription": None if transcribed is None else {"model": transcribed},
                "turn_detection": {"type": "server_vad", "create_response": True, "interrupt_response": True},
            },
            "output": {"format": speaks.to_wire(), "voice": config["voice"]},
        },
        "tool_choice": "auto",
    }
    given = {key: value for key, value in params.items() if key not in {"tools", "type", "model"}}
    merged = _merged(session, given)
    _check_turns(merged)
    return Settings(merged, list(params.get("tools") or []), hears, speaks)


def _check_turns(session: dict[str, Any]) -> None:
    modalities = session["output_modalities"]
    if modalities not in (["audio"], ["text"]):
        raise InvalidInputError(f"output_modalities={modalities!r}: a session answers with ['audio'] or with ['text']")
    detection = session["audio"]["input"].get("turn_detection")
    if not isinstance(detection, dict):
        raise InvalidInputError(
            f"turn_detection={detection!r}: the agent relies on the provider to say when the user speaks: leave it out, or "
            "use 'server_vad' or 'semantic_vad'"
        )
    for name in ("create_response", "interrupt_response"):
        if cast("dict[str, Any]", detection).get(name, True) is not True:
            raise InvalidInputError(
                f"turn_detection with {name}=False would leave the user without answers, or the answers without an end"
            )


def default_connection(timeout_s: float) -> dict[str, Any]:
    """How the connection is kept where nothing is said of it."""
    return {"restart_after_s": max(0.0, timeout_s - RESTART_MARGIN_S), "auto_restart": True}


def _function(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool["description"],
        "parameters": object_schema(tool["inputSchema"].get("json", {})),
    }


def _dict(name: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidTypeError(f"{name}={value!r} is not a dict")
    return dict(cast("Mapping[str, Any]", value))


def _inner(params: dict[str, Any], direction: str) -> dict[str, Any]:
    audio = _dict("params['audio']", params.get("audio"))
    return _dict(f"params['audio'][{direction!r}]", audio.get(direction))


def _merged(base: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `more`, dict by dict. Within one direction's `format` the more special one stands alone."""
    merged = dict(base)
    for key, value in more.items():
        old = merged.get(key)
        if key != "format" and isinstance(old, dict) and isinstance(value, Mapping):
            merged[key] = _merged(cast("dict[str, Any]", old), cast("Mapping[str, Any]", value))
        else:
            merged[key] = deepcopy(value)
    return merged
