"""What opens a session of Nova Sonic: its settings, its tools, and the history as far as it may be told. Pure.

Sources: "Input events" and "Handling conversation history" of Amazon Nova Sonic, Amazon Nova User Guide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from antiphon.content import Messages, Role, ToolResult, ToolSpec
from antiphon.errors import InvalidInputError
from antiphon.models.live import CONTINUE, Owed
from antiphon.models.schemas import object_schema

LONGEST_MESSAGE = 50_000
"""Bytes of one message of the history."""
LONGEST_HISTORY = 200_000
"""Bytes of all of them."""
RATES = (8000, 16000, 24000)
SENSITIVITIES = ("HIGH", "MEDIUM", "LOW")
DEFAULT_PROMPT = "You are a helpful assistant."
"""Said where the agent has no system prompt: a session begins with one."""

Sensitivity = Literal["HIGH", "MEDIUM", "LOW"]

_PARAMS = {
    "max_tokens": "maxTokens",
    "maxTokens": "maxTokens",
    "top_p": "topP",
    "topP": "topP",
    "temperature": "temperature",
}
_DEFAULTS = {"maxTokens": 1024, "topP": 0.9, "temperature": 0.7}
_CUT = "… "


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a connection is told first.

    Attributes:
        model_id: Decides which generation's events are spoken.
        voice: The voice's id.
        input_rate: Of the user's sound, in Hz.
        output_rate: Of the model's, in Hz.
        inference: `maxTokens`, `topP`, `temperature`.
        sensitivity: How soon a pause ends the user's turn.
        system_prompt: Its text.
        tools: What may be called.
        history: Texts, alternating between user and assistant, the user's first.
        asks: What the model is asked at once, as if it were typed, because another session has not answered it.
    """

    model_id: str
    voice: str = "matthew"
    input_rate: int = 16000
    output_rate: int = 24000
    inference: Mapping[str, float] = field(default_factory=lambda: dict(_DEFAULTS))
    sensitivity: Sensitivity | None = None
    system_prompt: str = DEFAULT_PROMPT
    tools: tuple[ToolSpec, ...] = ()
    history: tuple[tuple[Role, str], ...] = ()
    asks: str = ""

    @property
    def is_first_generation(self) -> bool:
        """Whether this is the model of 2025, which takes no typed text."""
        return "nova-sonic-v1" in self.model_id

    def session_start(self) -> dict[str, Any]:
        """The first event."""
        session: dict[str, Any] = {"inferenceConfiguration": dict(self.inference)}
        if self.sensitivity is not None:
            turns = {"endpointingSensitivity": self.sensitivity}
            session |= turns if self.is_first_generation else {"turnDetectionConfiguration": turns}
        return {"sessionStart": session}

    def prompt_start(self, prompt: str) -> dict[str, Any]:
        """The second event."""
        start: dict[str, Any] = {
            "promptName": prompt,
            "textOutputConfiguration": {"mediaType": "text/plain"},
            "audioOutputConfiguration": {
                "mediaType": "audio/lpcm",
                "sampleRateHertz": self.output_rate,
                "sampleSizeBits": 16,
                "channelCount": 1,
                "voiceId": self.voice,
                "encoding": "base64",
                "audioType": "SPEECH",
            },
            "toolUseOutputConfiguration": {"mediaType": "application/json"},
        }
        if self.tools:
            start["toolConfiguration"] = {"tools": [_tool(spec) for spec in self.tools]}
        return {"promptStart": start}

    def audio_start(self, prompt: str, content: str) -> dict[str, Any]:
        """The event after which sound may be sent."""
        return {
            "contentStart": {
                "promptName": prompt,
                "contentName": content,
                "type": "AUDIO",
                "interactive": True,
                "role": "USER",
                "audioInputConfiguration": {
                    "mediaType": "audio/lpcm",
                    "sampleRateHertz": self.input_rate,
                    "sampleSizeBits": 16,
                    "channelCount": 1,
                    "audioType": "SPEECH",
                    "encoding": "base64",
                },
            }
        }


def _tool(spec: ToolSpec) -> dict[str, Any]:
    schema = spec["inputSchema"].get("json", {})
    text = schema if isinstance(schema, str) else json.dumps(object_schema(schema))
    return {
        "toolSpec": {
            "name": spec["name"],
            "description": spec["description"] or spec["name"],
            "inputSchema": {"json": text},
        },
    }


def checked_inference(params: Mapping[str, Any] | None) -> dict[str, float]:
    """`inferenceConfiguration` from a user's `params`, which may use Python's names.

    Raises:
        InvalidInputError: If a name is unknown, or a number cannot be.
    """
    found: dict[str, float] = dict(_DEFAULTS)
    for name, value in (params or {}).items():
        if name not in _PARAMS:
            raise InvalidInputError(f"params={name!r} is unknown: Nova Sonic has max_tokens, top_p and temperature")
        wire = _PARAMS[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInputError(f"params: {name}={value!r} is not a number")
        if wire == "maxTokens":
            if not isinstance(value, int) or value < 1:
                raise InvalidInputError(f"params: {name}={value!r} is not a whole number of at least 1")
        elif not 0 <= value <= 1:
            raise InvalidInputError(f"params: {name}={value!r} is not between 0 and 1")
        found[wire] = value
    return found


def replay(messages: Messages) -> tuple[tuple[Role, str], ...]:
    """A history as Nova takes it: text only, user and assistant in turns, the user first, the newest within its limits.

    What tools were asked and what they answered is told as words of the user, for the model would take to speaking it if
    these were its own. Images are left out.
    """
    names: dict[str, tuple[str, Any]] = {}
    turns: list[tuple[Role, str]] = []
    for message in messages:
        told: list[tuple[Role, str]] = []
        for block in message["content"]:
            if "text" in block:
                told.append((message["role"], block["text"]))
            elif "toolUse" in block:
                names[block["toolUse"]["toolUseId"]] = block["toolUse"]["name"], block["toolUse"]["input"]
            elif "toolResult" in block:
                told.append(("user", _told(block["toolResult"], names)))
        for role, text in told:
            if not text.strip():
                continue
            if turns and turns[-1][0] == role:
                turns[-1] = role, f"{turns[-1][1]}\n{text}"
            else:
                turns.append((role, text))
    return _within_limits(turns)


def unanswered(history: tuple[tuple[Role, str], ...], owed: Owed) -> tuple[tuple[tuple[Role, str], ...], str]:
    """The history of a session that takes the place of another one, and what it is asked; empty: nothing.

    >>> unanswered((("user", "hi"),), "said")
    ((), 'hi')
    """
    if owed and history and history[-1][0] == "user":
        return history[:-1], history[-1][1]
    return history, CONTINUE if owed == "cut" and history else ""


def _told(result: ToolResult, names: Mapping[str, tuple[str, Any]]) -> str:
    name, asked = names.get(result["toolUseId"], ("", None))
    return spoken_result(name, asked, result["status"], result["content"])


def _within_limits(turns: list[tuple[Role, str]]) -> tuple[tuple[Role, str], ...]:
    kept: list[tuple[Role, str]] = []
    room = LONGEST_HISTORY
    for role, text in reversed(turns):
        cut = _newest(text, LONGEST_MESSAGE)
        room -= len(cut.encode())
        if room < 0:
            break
        kept.append((role, cut))
    while kept and kept[-1][0] != "user":
        kept.pop()
    return tuple(reversed(kept))


def _newest(text: str, limit: int) -> str:
    """The end of `text`, in at most `limit` bytes; whole characters only, and legal ones."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode()
    return _CUT + raw[len(_CUT.encode()) - limit :].decode("utf-8", "ignore")


def spoken_result(name: str, asked: Any, status: str, content: list[dict[str, Any]]) -> str:
    """The result of a tool as a person would pass it on, for a model that does not know of the call."""
    called = f"The tool {name!r}" if name else "A tool"
    given = f", called with {json.dumps(asked, ensure_ascii=False, default=str)}," if asked else ""
    verb = "has failed" if status == "error" else "has answered"
    return f"[{called}{given} {verb}: {result_json(content)}]"


def result_json(content: list[dict[str, Any]], status: str = "success") -> str:
    """The result of a tool as the JSON text of an object, which Nova wants.

    One block stands for itself. What is neither text nor JSON cannot be told: a note stands in its place.
    """
    blocks = [_plain(block) for block in content]
    value: Any = blocks[0] if len(blocks) == 1 else {"content": blocks}
    if set(value) == {"json"}:
        value = value["json"] if isinstance(value["json"], dict) else {"result": value["json"]}
    if status == "error":
        value = {"status": "error", **cast("dict[str, Any]", value)}
    return json.dumps(value, ensure_ascii=False, default=str)


def _plain(block: dict[str, Any]) -> dict[str, Any]:
    if "text" in block:
        return {"text": block["text"]}
    if "json" in block:
        return {"json": block["json"]}
    return {"text": f"({next(iter(block), 'nothing')}: left out, for only text can be told)"}
