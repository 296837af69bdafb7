"""What Amazon Nova Sonic takes, and in which order. Pure: events go in, a refusal or nothing comes out.

Sources: "Using the Amazon Nova Sonic Speech-to-Speech model: Input events, Handling conversation history", Amazon Nova User
Guide.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

LONGEST_MESSAGE = 50 * 1024
LONGEST_HISTORY = 200 * 1024
RATES = {8000, 16000, 24000}
HISTORY_ORDER = "Chat history should be sent completely before streaming audio."
TOOL_PARSING = "Tool Response parsing error"


class RefusedError(Exception):
    """The service answers with an exception.

    Attributes:
        kind: Its name on the wire.
        fatal: Whether it ends the session.
    """

    def __init__(self, message: str, kind: str = "validationException", *, fatal: bool = True) -> None:
        super().__init__(message)
        self.kind = kind
        self.fatal = fatal


@dataclass(slots=True)
class _Block:
    type: str
    role: str
    interactive: bool
    tool_use_id: str = ""
    text: str = ""
    filled: bool = False


@dataclass(slots=True)
class NovaSession:
    """One session, as the service sees it: what was sent, decoded.

    Attributes:
        model_id: The model that was asked for.
        headers: Of the request.
        events: Every event, in order, as `(name, body)`.
        settings: The bodies of `sessionStart` and `promptStart`, by name.
        system_prompt: Its text.
        history: What was told of earlier, as `(role, text)`.
        typed: Texts that the user typed.
        sound: All sound, 16-bit PCM.
        results: Results of tools, as `(tool_use_id, value)`.
        calls: Tool calls that wait for their result: names by id.
        stage: How far it is.
        complaints: What it was told for breaking a rule.
        ended_well: Whether the client ended it in good order, with the signed empty message.
    """

    model_id: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    settings: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    system_prompt: str | None = None
    history: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    typed: list[str] = field(default_factory=list[str])
    sound: bytearray = field(default_factory=bytearray)
    results: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    calls: dict[str, str] = field(default_factory=dict[str, str])
    stage: Literal["new", "session", "prompt", "talk", "prompt_over", "over"] = "new"
    complaints: list[str] = field(default_factory=list[str])
    ended_well: bool = False
    _blocks: dict[str, _Block] = field(default_factory=dict[str, _Block])
    _used: set[str] = field(default_factory=set[str])

    @property
    def is_first_generation(self) -> bool:
        """Whether this is the model of 2025."""
        return "nova-sonic-v1" in self.model_id

    def names(self) -> list[str]:
        """The names of all events but sound, in order."""
        return [name for name, _ in self.events if name != "audioInput"]

    def take(self, event: object) -> str:
        """An event of the client. Returns its name.

        Raises:
            RefusedError: If the service would not take it.
        """
        if not isinstance(event, dict) or len(cast("dict[str, Any]", event)) != 1:
            raise RefusedError("An event must be an object with exactly one name.")
        name, body = next(iter(cast("dict[str, Any]", event).items()))
        handler = _HANDLERS.get(name)
        if handler is None:
            raise RefusedError(f"Unsupported event: {name}")
        if not isinstance(body, dict):
            raise RefusedError(f"{name} must be an object.")
        fields = cast("dict[str, Any]", body)
        self.events.append((name, fields))
        if self.stage == "over":
            raise RefusedError(f"{name} after sessionEnd.")
        if name != "sessionStart" and self.stage == "new":
            raise RefusedError(f"The first event must be sessionStart, not {name}.")
        if name not in {"sessionStart", "promptStart", "sessionEnd"}:
            if self.stage not in {"prompt", "talk"}:
                raise RefusedError(f"{name} outside of a prompt.")
            if fields.get("promptName") != self.settings["promptStart"]["promptName"]:
                raise RefusedError(f"{name}: unknown promptName {fields.get('promptName')!r}.")
        handler(self, fields)
        return name

    def session_start(self, body: dict[str, Any]) -> None:
        """`sessionStart`: once, with settings that can be."""
        if self.stage != "new":
            raise RefusedError("sessionStart was sent already.")
        inference = body.get("inferenceConfiguration")
        if not isinstance(inference, dict):
            raise RefusedError("sessionStart needs inferenceConfiguration.")
        limits = cast("dict[str, Any]", inference)
        if unknown := set(limits) - {"maxTokens", "topP", "temperature"}:
            raise RefusedError(f"Unknown inference parameters: {sorted(unknown)}")
        if not isinstance(limits.get("maxTokens", 1), int) or limits.get("maxTokens", 1) < 1:
            raise RefusedError("maxTokens must be a positive integer.")
        for name in ("topP", "temperature"):
            if not 0 <= limits.get(name, 0) <= 1:
                raise RefusedError(f"{name} must be between 0 and 1.")
        other = "turnDetectionConfiguration" if self.is_first_generation else "endpointingSensitivity"
        if other in body:
            raise RefusedError(f"{self.model_id} has no {other} here.")
        turns = body if self.is_first_generation else body.get("turnDetectionConfiguration", {})
        if turns.get("endpointingSensitivity", "HIGH") not in {"HIGH", "MEDIUM", "LOW"}:
            raise RefusedError("endpointingSensitivity must be HIGH, MEDIUM or LOW.")
        self.settings["sessionStart"] = body
        self.stage = "session"

    def prompt_start(self, body: dict[str, Any]) -> None:
        """`promptStart`: once, with formats that the service has, and tools whose schemas are JSON in a text."""
        if self.stage != "session":
            raise RefusedError("promptStart must be sent once, after sessionStart.")
        if not isinstance(body.get("promptName"), str) or not body["promptName"]:
            raise RefusedError("promptStart needs a promptName.")
        if body.get("textOutputConfiguration") != {"mediaType": "text/plain"}:
            raise RefusedError("textOutputConfiguration must be text/plain.")
        audio = _object(body, "audioOutputConfiguration")
        _audio_format(audio)
        if not isinstance(audio.get("voiceId"), str) or not audio["voiceId"]:
            raise RefusedError("audioOutputConfiguration needs a voiceId.")
        tools: list[Any] = body.get("toolConfiguration", {}).get("tools", [])
        if tools and body.get("toolUseOutputConfiguration") != {"mediaType": "application/json"}:
            raise RefusedError("toolUseOutputConfiguration must be application/json.")
        for tool in tools:
            _tool(tool)
        self.settings["promptStart"] = body
        self.stage = "prompt"

    def content_start(self, body: dict[str, Any]) -> None:
        """`contentStart`: the system prompt first, then the history, then the sound; a text at a time."""
        name = body.get("contentName")
        if not isinstance(name, str) or not name:
            raise RefusedError("contentStart needs a contentName.")
        if name in self._used:
            raise RefusedError(f"contentName {name!r} was used already.")
        block = _Block(str(body.get("type")), str(body.get("role")), body.get("interactive") is True)
        if block.type not in {"TEXT", "AUDIO", "TOOL"}:
            raise RefusedError(f"contentStart: unsupported type {block.type!r}.")
        if block.type != "AUDIO" and any(other.type != "AUDIO" for other in self._blocks.values()):
            raise RefusedError("Another content block is still open.")
        if self.system_prompt is None and block.role != "SYSTEM":
            raise RefusedError("The first content must be the SYSTEM prompt.")
        if block.type == "AUDIO":
            self._audio_start(block, body)
        elif block.type == "TOOL":
            self._tool_start(block, body)
        else:
            self._text_start(block, body)
        self._used.add(name)
        self._blocks[name] = block

    def _audio_start(self, block: _Block, body: dict[str, Any]) -> None:
        if block.role != "USER" or not block.interactive:
            raise RefusedError("Audio content must be of role USER, and interactive.")
        if self.stage == "talk":
            raise RefusedError("Audio content was started already.")
        if self.history and self.history[0][0] != "USER":
            raise RefusedError("Chat history must begin with a USER message.")
        _audio_format(_object(body, "audioInputConfiguration"))
        self.stage = "talk"

    def _tool_start(self, block: _Block, body: dict[str, Any]) -> None:
        config = _object(body, "toolResultInputConfiguration")
        if block.role != "TOOL" or block.interactive:
            raise RefusedError("Tool results must be of role TOOL, and not interactive.")
        if config.get("type") != "TEXT" or config.get("textInputConfiguration") != {"mediaType": "text/plain"}:
            raise RefusedError("Tool results must be TEXT, text/plain.")
        block.tool_use_id = str(config.get("toolUseId"))
        if block.tool_use_id not in self.calls:
            raise RefusedError(f"No tool use waits for a result with the id {block.tool_use_id!r}.")

    def _text_start(self, block: _Block, body: dict[str, Any]) -> None:
        if body.get("textInputConfiguration") != {"mediaType": "text/plain"}:
            raise RefusedError("textInputConfiguration must be text/plain.")
        if block.role not in {"SYSTEM", "USER", "ASSISTANT"}:
            raise RefusedError(f"contentStart: unsupported role {block.role!r} for TEXT.")
        if block.role == "SYSTEM":
            if self.system_prompt is not None:
                raise RefusedError("The SYSTEM prompt was sent already.")
            if block.interactive:
                raise RefusedError("The SYSTEM prompt must not be interactive.")
            return
        if block.interactive:
            if self.is_first_generation:
                raise RefusedError(f"{self.model_id} takes no interactive text.")
            if block.role != "USER":
                raise RefusedError("Interactive text must be of role USER.")
            return
        if self.stage == "talk":
            raise RefusedError(HISTORY_ORDER)
        if not self.history and block.role != "USER":
            raise RefusedError("Chat history must begin with a USER message.")
        if self.history and self.history[-1][0] == block.role:
            raise RefusedError("Chat history must alternate between USER and ASSISTANT messages.")

    def _open(self, body: dict[str, Any], kind: str, event: str) -> _Block:
        block = self._blocks.get(str(body.get("contentName")))
        if block is None or block.type != kind:
            raise RefusedError(f"{event} outside of an open {kind} content block.")
        if not isinstance(body.get("content"), str):
            raise RefusedError(f"{event}: content must be a string.")
        return block

    def text_input(self, body: dict[str, Any]) -> None:
        """`textInput`."""
        block = self._open(body, "TEXT", "textInput")
        block.text += body["content"]
        block.filled = True
        if len(block.text.encode()) > LONGEST_MESSAGE:
            raise RefusedError("A message exceeds the limit of 50 KB.")

    def audio_input(self, body: dict[str, Any]) -> None:
        """`audioInput`."""
        self._open(body, "AUDIO", "audioInput")
        try:
            pcm = b64decode(body["content"], validate=True)
        except ValueError as error:
            raise RefusedError("audioInput: content must be base64.") from error
        if len(pcm) % 2:
            raise RefusedError("audioInput: content must be whole 16-bit samples.")
        self.sound += pcm

    def tool_result(self, body: dict[str, Any]) -> None:
        """`toolResult`: JSON of an object, in a text."""
        block = self._open(body, "TOOL", "toolResult")
        block.filled = True
        try:
            value: Any = json.loads(body["content"])
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise RefusedError(TOOL_PARSING, fatal=False)
        del self.calls[block.tool_use_id]
        self.results.append((block.tool_use_id, cast("Any", value)))

    def content_end(self, body: dict[str, Any]) -> None:
        """`contentEnd`."""
        block = self._blocks.pop(str(body.get("contentName")), None)
        if block is None:
            raise RefusedError("contentEnd of content that is not open.")
        if block.type != "AUDIO" and not block.filled:
            raise RefusedError("contentEnd of content that is empty.")
        if block.type != "TEXT":
            return
        if block.role == "SYSTEM":
            self.system_prompt = block.text
        elif block.interactive:
            self.typed.append(block.text)
        else:
            self.history.append((block.role, block.text))
            if sum(len(text.encode()) for _, text in self.history) > LONGEST_HISTORY:
                raise RefusedError("Chat history exceeds the limit of 200 KB.")

    def prompt_end(self, body: dict[str, Any]) -> None:
        """`promptEnd`: when no content is open any more."""
        if self._blocks:
            raise RefusedError("promptEnd while content is open: send contentEnd first.")
        self.stage = "prompt_over"

    def session_end(self, body: dict[str, Any]) -> None:
        """`sessionEnd`: after `promptEnd`."""
        if self.stage != "prompt_over":
            raise RefusedError("sessionEnd before promptEnd.")
        self.stage = "over"


_HANDLERS: dict[str, Callable[[NovaSession, dict[str, Any]], None]] = {
    "sessionStart": NovaSession.session_start,
    "promptStart": NovaSession.prompt_start,
    "contentStart": NovaSession.content_start,
    "textInput": NovaSession.text_input,
    "audioInput": NovaSession.audio_input,
    "toolResult": NovaSession.tool_result,
    "contentEnd": NovaSession.content_end,
    "promptEnd": NovaSession.prompt_end,
    "sessionEnd": NovaSession.session_end,
}


def _object(body: dict[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise RefusedError(f"{name} is missing.")
    return cast("dict[str, Any]", value)


def _audio_format(config: dict[str, Any]) -> None:
    wanted = {
        "mediaType": "audio/lpcm",
        "sampleSizeBits": 16,
        "channelCount": 1,
        "encoding": "base64",
        "audioType": "SPEECH",
    }
    for name, value in wanted.items():
        if config.get(name) != value:
            raise RefusedError(f"{name} must be {value}, not {config.get(name)!r}.")
    if config.get("sampleRateHertz") not in RATES:
        raise RefusedError(f"sampleRateHertz must be one of {sorted(RATES)}, not {config.get('sampleRateHertz')!r}.")


def _tool(tool: Any) -> None:
    spec: Any = cast("dict[str, Any]", tool).get("toolSpec") if isinstance(tool, dict) else None
    if not isinstance(spec, dict):
        raise RefusedError("A tool must have a toolSpec.")
    fields = cast("dict[str, Any]", spec)
    for name in ("name", "description"):
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise RefusedError(f"toolSpec needs a {name}.")
    schema: Any = fields.get("inputSchema", {}).get("json")
    try:
        read: Any = json.loads(schema) if isinstance(schema, str) else None
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise RefusedError("toolSpec: inputSchema.json must be a string with a JSON object.")
