"""What opens a Gemini Live session: the setup message, and the history that a new session is told. Pure.

Sources: the Live API's `BidiGenerateContentSetup` and `BidiGenerateContentClientContent` (ai.google.dev/api/live).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from antiphon.content import ContentBlock, Messages, ToolSpec
from antiphon.errors import InvalidInputError
from antiphon.models.live import Owed
from antiphon.models.schemas import object_schema

Scheduling = Literal["INTERRUPT", "WHEN_IDLE", "SILENT"]

GENERATION_KEYS = frozenset(
    {
        "candidateCount",
        "enableAffectiveDialog",
        "frequencyPenalty",
        "maxOutputTokens",
        "mediaResolution",
        "presencePenalty",
        "responseModalities",
        "seed",
        "speechConfig",
        "temperature",
        "thinkingConfig",
        "topK",
        "topP",
        "translationConfig",
    }
)
"""Parameters that belong into `generationConfig`; users may write them without it."""
SETUP_KEYS = frozenset(
    {
        "avatarConfig",
        "contextWindowCompression",
        "explicitVadSignal",
        "generationConfig",
        "historyConfig",
        "inputAudioTranscription",
        "labels",
        "outputAudioTranscription",
        "proactivity",
        "realtimeInputConfig",
        "safetySettings",
        "sessionResumption",
        "tools",
    }
)
"""Parameters of the setup itself."""
HISTORY_CHARS = 200_000
"""How much text of the history a new session is told: a good part of the 128k tokens of its context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """How sessions are set up.

    Attributes:
        model: The model's resource name, as the endpoint wants it.
        voice: The voice's name; None: the model's default.
        input_rate: Rate of the user's sound, in Hz.
        output_rate: Rate that the listener wants, in Hz.
        params: What the user gave, as it goes over the wire, by the names of the wire; None takes a default out.
        non_blocking: Tools that the model does not wait for; True: all of them.
        scheduling: When the model speaks of the result of such a tool.
        history_chars: How much text of the history a new session is told; the newest is kept.
    """

    model: str
    voice: str | None = None
    input_rate: int = 16000
    output_rate: int = 24000
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    non_blocking: bool | Collection[str] = False
    scheduling: Scheduling | None = None
    history_chars: int = HISTORY_CHARS

    def does_not_block(self, tool: str) -> bool:
        """Whether the model goes on while this tool works."""
        return self.non_blocking if isinstance(self.non_blocking, bool) else tool in self.non_blocking


def camel(name: str) -> str:
    """A name as Google writes it in JSON.

    >>> camel("top_p"), camel("topP")
    ('topP', 'topP')
    """
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)


_VERBATIM = frozenset({"args", "response", "labels", "parametersJsonSchema", "responseJsonSchema"})


def camel_keys(value: Any) -> Any:
    """A copy with all keys as Google writes them; what belongs to the user (arguments, schemas, labels) as it is."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value).items()
        named = [(camel(key) if isinstance(key, str) else key, item) for key, item in entries]
        return {key: item if key in _VERBATIM else camel_keys(item) for key, item in named}
    if isinstance(value, (list, tuple)):
        return [camel_keys(item) for item in cast("list[Any]", value)]
    return value


def wire_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """A user's parameters by the names of the wire, where they belong.

    >>> wire_params({"temperature": 0.5, "proactivity": {"proactive_audio": True}})
    {'proactivity': {'proactiveAudio': True}, 'generationConfig': {'temperature': 0.5}}

    Raises:
        InvalidInputError: If one is unknown: the service would close the session without saying which.
    """
    known: dict[str, Any] = {}
    generation: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", camel_keys(params)).items():
        if key in GENERATION_KEYS:
            generation[key] = value
        elif key in SETUP_KEYS:
            known[key] = value
        else:
            raise InvalidInputError(
                f"params has {key!r}, which Gemini Live does not know: "
                f"use some of {sorted(GENERATION_KEYS | SETUP_KEYS)}"
            )
    if generation:
        known["generationConfig"] = _merged(known.get("generationConfig") or {}, generation)
    return known


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both, the second one over the first; None takes out."""
    merged = dict(below)
    for key, value in above.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = _merged(merged[key], cast("Mapping[str, Any]", value))
        else:
            merged[key] = value
    return merged


def setup_message(
    settings: LiveSettings,
    system_prompt: str | None,
    tools: list[ToolSpec],
    *,
    handle: str | None,
    seeds: bool,
) -> dict[str, Any]:
    """The first message of a session.

    Args:
        settings: How sessions are set up.
        system_prompt: The system prompt.
        tools: What may be called.
        handle: Resumes the session that it stands for.
        seeds: Whether a history follows in `clientContent`, up to its `turnComplete`.
    """
    generation: dict[str, Any] = {"responseModalities": ["AUDIO"]}
    if settings.voice is not None:
        generation["speechConfig"] = {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": settings.voice}}}
    setup: dict[str, Any] = {
        "model": settings.model,
        "generationConfig": generation,
        "inputAudioTranscription": {},
        "outputAudioTranscription": {},
        "contextWindowCompression": {"slidingWindow": {}},
        "sessionResumption": {},
    }
    if system_prompt:
        setup["systemInstruction"] = {"parts": [{"text": system_prompt}]}
    if tools:
        setup["tools"] = [{"functionDeclarations": [_declaration(settings, tool) for tool in tools]}]
    params = dict(settings.params)
    more_tools = params.pop("tools", None)
    setup = _merged(setup, params)
    if more_tools:
        setup["tools"] = [*setup.get("tools", []), *more_tools]
    if handle is not None:
        setup["sessionResumption"] = {**setup.get("sessionResumption", {}), "handle": handle}
    if seeds:
        setup["historyConfig"] = {**setup.get("historyConfig", {}), "initialHistoryInClientContent": True}
    return {"setup": setup}


def _declaration(settings: LiveSettings, tool: ToolSpec) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": tool["name"], "description": tool["description"]}
    schema = object_schema(tool["inputSchema"].get("json", {}))
    if schema["properties"]:  # an object without properties is refused: no parameters are left out instead
        declaration["parametersJsonSchema"] = schema
    if settings.does_not_block(tool["name"]):
        declaration["behavior"] = "NON_BLOCKING"
    return declaration


def history_turns(messages: Messages, limit: int = HISTORY_CHARS) -> list[dict[str, Any]]:
    """A history as turns that a session can be seeded with: text only, of alternating roles, the newest `limit` characters.

    Sound cannot be seeded. A tool's call and its result are told in words, so that the model knows what it has done and does
    not do it again; an image is mentioned.

    >>> history_turns([{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"text": "hello"}]}])
    [{'role': 'user', 'parts': [{'text': 'hi'}]}, {'role': 'model', 'parts': [{'text': 'hello'}]}]
    """
    names: dict[str, str] = {}
    turns: list[tuple[str, list[str]]] = []
    for message in messages:
        texts = [text for block in message["content"] if (text := _told(block, names))]
        if not texts:
            continue
        role = "model" if message["role"] == "assistant" else "user"
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(texts)
        else:
            turns.append((role, texts))
    kept: list[dict[str, Any]] = []
    room = limit
    for role, texts in reversed(turns):
        room -= sum(map(len, texts))
        if room < 0 and kept:
            break
        kept.append({"role": role, "parts": [{"text": text} for text in texts]})
    return kept[::-1]


def unanswered(turns: list[dict[str, Any]], owed: Owed, *, resumed: bool) -> str:
    """What a session is asked because another one has not answered it; empty: nothing.

    Args:
        turns: The history.
        owed: What answer the other one owed.
        resumed: Whether the session is an older state of the other one: it does not know the question, although an answer to
            it may have begun.
    """
    asked = [turn for turn in turns if turn["role"] == "user"] if resumed else turns[-1:]
    if not owed or not asked or asked[-1]["role"] != "user":
        return ""
    return "\n".join(part["text"] for part in asked[-1]["parts"])


def _told(block: ContentBlock, names: dict[str, str]) -> str:
    """A block in words; empty where there is nothing to say of it."""
    if "text" in block:
        return block["text"] if block["text"].strip() else ""
    if "toolUse" in block:
        call = block["toolUse"]
        names[call["toolUseId"]] = call["name"]
        return f"[I called the tool {call['name']} with {as_json(call['input'])}]"
    if "toolResult" in block:
        result = block["toolResult"]
        name = names.get(result["toolUseId"], "a tool")
        return f"[{name} {'failed' if result['status'] == 'error' else 'returned'}: {result_text(result['content'])}]"
    if "image" in block:
        return "[an image]"
    return ""


def result_text(content: list[dict[str, Any]]) -> str:
    """The result of a tool in words."""
    told: list[str] = []
    for block in content:
        if "text" in block:
            told.append(block["text"])
        elif "json" in block:
            told.append(as_json(block["json"]))
        else:
            told.append(f"[{next(iter(block), 'nothing')}]")
    return "\n".join(told)


def as_json(value: Any) -> str:
    """A value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
