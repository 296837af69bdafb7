"""The rules of Gemini Live: what it takes from a client, when, and with which words it refuses the rest. Pure.

Where the service's own words are known from its documentation or from what people quote, they are used; else it is the generic
"Request contains an invalid argument.", with what is wrong behind it.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any, cast

from antiphon.errors import NotJsonError
from antiphon.jsonable import decode_json

INVALID, POLICY, BACKEND = 1007, 1008, 1011

UNION = ("setup", "clientContent", "realtimeInput", "toolResponse", "contextUpdate")
_SETUP = frozenset(
    {
        "avatarConfig",
        "contextWindowCompression",
        "explicitVadSignal",
        "generationConfig",
        "historyConfig",
        "inputAudioTranscription",
        "labels",
        "model",
        "outputAudioTranscription",
        "proactivity",
        "realtimeInputConfig",
        "safetySettings",
        "sessionResumption",
        "systemInstruction",
        "tools",
    }
)
_GENERATION = frozenset(
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
_REALTIME = frozenset({"audio", "audioStreamEnd", "video", "text", "activityStart", "activityEnd", "mediaChunks"})
_DETECTION = frozenset(
    {"disabled", "startOfSpeechSensitivity", "endOfSpeechSensitivity", "prefixPaddingMs", "silenceDurationMs"}
)
_FUNCTION_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_PCM = re.compile(r"audio/(?:pcm|l16)\s*;\s*rate=\d+", re.IGNORECASE)
_USERS = frozenset({"args", "response", "labels", "properties", "parametersJsonSchema", "responseJsonSchema"})


class Refused(Exception):
    """The client broke a rule: the session is closed.

    Attributes:
        code: The close code.
        reason: The service's words.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")
        self.code, self.reason = code, reason


def invalid(why: str = "") -> Refused:
    """What the service does not accept."""
    return Refused(INVALID, f"Request contains an invalid argument. {why}".strip())


def normalised(value: Any) -> Any:
    """A copy with the keys of the protocol in camel case; the service takes both."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value).items()
        named = [(re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), key), item) for key, item in entries]
        return {key: item if key in _USERS else normalised(item) for key, item in named}
    if isinstance(value, list):
        return [normalised(item) for item in cast("list[object]", value)]
    return value


def parsed(frame: str | bytes) -> dict[str, Any]:
    """A client's message: an object with exactly one field of the union.

    Raises:
        Refused: If it is not.
    """
    try:
        value = decode_json(frame.encode() if isinstance(frame, str) else frame)
    except (NotJsonError, ValueError) as error:
        raise Refused(INVALID, "Invalid JSON payload received. Unexpected token.") from error
    if not isinstance(value, dict):
        raise Refused(INVALID, "Invalid JSON payload received. Root element must be a message.")
    message: dict[str, Any] = normalised(value)
    known(message, frozenset(UNION), "")
    if not message:
        raise invalid("The message is empty.")
    if len(message) > 1:
        first, second, *_ = message
        raise Refused(
            INVALID,
            f"Invalid value at '{second}' (oneof), oneof field 'message_type' is already set. Cannot set '{second}' "
            f"beside '{first}'",
        )
    return message


def known(fields: Mapping[str, Any], names: frozenset[str], where: str) -> None:
    """Only fields that the service knows.

    Raises:
        Refused: At the first other one.
    """
    for key in fields:
        if key not in names:
            at = f" at '{where}'" if where else ""
            raise Refused(INVALID, f'Invalid JSON payload received. Unknown name "{key}"{at}: Cannot find field.')


def message_at(holder: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A field that is a message; empty if it is not there.

    Raises:
        Refused: If it is something else.
    """
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refused(INVALID, f"Invalid value at '{key}'")
    return cast("dict[str, Any]", value)


def messages_at(holder: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """A field that is a list of messages; empty if it is not there.

    Raises:
        Refused: If it is something else.
    """
    value = holder.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in cast("list[object]", value)):
        raise Refused(INVALID, f"Invalid value at '{key}'")
    return cast("list[dict[str, Any]]", value)


def check_setup(setup: dict[str, Any], *, model: str, vertex: bool) -> None:
    """The first message.

    Raises:
        Refused: If the service would not open this session.
    """
    known(setup, _SETUP, "setup")
    asked = setup.get("model")
    if asked != model:
        raise Refused(
            POLICY,
            f"{asked} is not found for API version v1beta, or is not supported for bidiGenerateContent. "
            "Call ListModels to see the list of available models and their supported methods.",
        )
    generation = message_at(setup, "generationConfig")
    known(generation, _GENERATION, "setup.generation_config")
    modalities = generation.get("responseModalities", ["AUDIO"])
    if modalities not in (["AUDIO"], ["TEXT"]):
        raise Refused(
            INVALID,
            f"The requested combination of response modalities ({', '.join(map(str, modalities))}) is not supported by "
            f"the model. {asked}",
        )
    if modalities == ["TEXT"] and "speechConfig" in generation:
        raise Refused(INVALID, "Cannot extract voices from a non-audio request.")
    temperature = generation.get("temperature", 1)
    if not isinstance(temperature, (int, float)) or not 0 <= temperature <= 2:
        raise invalid(f"temperature must be in the range [0.0, 2.0], got {temperature!r}.")
    prompt = message_at(setup, "systemInstruction")
    for part in messages_at(prompt, "parts"):
        if not isinstance(part.get("text"), str):
            raise invalid("system_instruction takes text only.")
    realtime = message_at(setup, "realtimeInputConfig")
    known(
        realtime,
        frozenset(
            {"automaticActivityDetection", "activityHandling", "turnCoverage", "interimTranscriptTimestampEnabled"}
        ),
        "setup.realtime_input_config",
    )
    known(
        message_at(realtime, "automaticActivityDetection"),
        _DETECTION,
        "setup.realtime_input_config.automatic_activity_detection",
    )
    if realtime.get("activityHandling") not in {
        None,
        "ACTIVITY_HANDLING_UNSPECIFIED",
        "START_OF_ACTIVITY_INTERRUPTS",
        "NO_INTERRUPTION",
    }:
        raise Refused(INVALID, "Invalid value at 'setup.realtime_input_config.activity_handling'")
    resumption = message_at(setup, "sessionResumption")
    known(resumption, frozenset({"handle", "transparent"}), "setup.session_resumption")
    if resumption.get("transparent") and not vertex:
        raise Refused(INVALID, "transparent session resumption is not supported in Gemini API.")
    compression = message_at(setup, "contextWindowCompression")
    known(compression, frozenset({"triggerTokens", "slidingWindow"}), "setup.context_window_compression")
    known(message_at(setup, "historyConfig"), frozenset({"initialHistoryInClientContent"}), "setup.history_config")
    declared(setup)


def declared(setup: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The functions of a setup by name.

    Raises:
        Refused: If one is malformed.
    """
    functions: dict[str, dict[str, Any]] = {}
    for number, tool in enumerate(messages_at(setup, "tools")):
        for index, declaration in enumerate(messages_at(tool, "functionDeclarations")):
            where = f"setup.tools[{number}].function_declarations[{index}]"
            known(
                declaration,
                frozenset(
                    {
                        "name",
                        "description",
                        "parameters",
                        "parametersJsonSchema",
                        "response",
                        "responseJsonSchema",
                        "behavior",
                    }
                ),
                where,
            )
            name = declaration.get("name")
            if not isinstance(name, str) or not _FUNCTION_NAME.fullmatch(name):
                raise invalid(f"{where}.name: Invalid function name.")
            if name in functions:
                raise invalid(f"Duplicate function declaration found: {name}")
            if "parameters" in declaration and "parametersJsonSchema" in declaration:
                raise invalid(f"{where}: parameters and parameters_json_schema are mutually exclusive.")
            schema = declaration.get("parameters")
            if isinstance(schema, dict) and not cast("dict[str, Any]", schema).get("properties"):
                raise invalid(f"{where}.parameters.properties: should be non-empty for OBJECT type")
            if declaration.get("behavior") not in {None, "UNSPECIFIED", "BLOCKING", "NON_BLOCKING"}:
                raise Refused(INVALID, f"Invalid value at '{where}.behavior'")
            functions[name] = declaration
    return functions


def check_realtime(fields: dict[str, Any], *, manual: bool, active: bool) -> str:
    """A `realtimeInput`: one field, of a kind that the session takes.

    Args:
        fields: The message.
        manual: Whether the client says when the user speaks.
        active: Whether it has said that the user does.

    Returns:
        The field.

    Raises:
        Refused: If the service would not take it.
    """
    known(fields, _REALTIME, "realtime_input")
    if len(fields) != 1:
        raise invalid(f"realtime_input takes one field per message, got {len(fields)}: {', '.join(fields)}.")
    (key,) = fields
    if key == "mediaChunks":
        raise Refused(INVALID, "realtime_input.media_chunks is deprecated. Use audio, video, or text instead.")
    if key in {"audio", "video"}:
        blob = message_at(fields, key)
        known(blob, frozenset({"data", "mimeType", "displayName"}), f"realtime_input.{key}")
        mime = blob.get("mimeType")
        if key == "audio" and not (isinstance(mime, str) and _PCM.fullmatch(mime)):
            raise invalid(f"Unsupported audio mime type {mime!r}: use audio/pcm;rate=...")
        if key == "video" and not (isinstance(mime, str) and mime.startswith(("image/", "video/"))):
            raise invalid(f"Unsupported video mime type {mime!r}.")
        data = decoded(blob.get("data"))
        if key == "audio" and len(data) % 2:
            raise invalid("audio is not whole 16-bit samples.")
    elif key == "text":
        if not isinstance(fields["text"], str):
            raise Refused(INVALID, "Invalid value at 'realtime_input.text' (TYPE_STRING)")
    elif key == "audioStreamEnd":
        if manual:
            raise invalid("audio_stream_end is only supported when automatic activity detection is enabled.")
    elif not manual:
        raise Refused(
            INVALID, "Explicit activity control is not supported when automatic activity detection is enabled."
        )
    elif (key == "activityStart") == active:
        raise invalid("activity_start and activity_end must alternate.")
    return key


def check_content(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The turns of a `clientContent`.

    Raises:
        Refused: If they are malformed.
    """
    known(content, frozenset({"turns", "turnComplete"}), "client_content")
    turns = messages_at(content, "turns")
    for turn in turns:
        known(turn, frozenset({"role", "parts"}), "client_content.turns")
        if turn.get("role") not in {"user", "model"}:
            raise invalid("Please use a valid role: user, model.")
        parts = messages_at(turn, "parts")
        if not parts:
            raise invalid("contents.parts must not be empty.")
        for part in parts:
            if len(part) != 1 or not {"text", "inlineData", "functionCall", "functionResponse"} & set(part):
                raise invalid(f"contents.parts must have one initialized data field, got {', '.join(part) or 'none'}.")
            if "text" in part and not (isinstance(part["text"], str) and part["text"]):
                raise invalid("contents.parts.text must not be empty.")
    return turns


def check_responses(
    fields: dict[str, Any], pending: Mapping[str, str], functions: Mapping[str, dict[str, Any]]
) -> list[str]:
    """A `toolResponse`: results of calls that wait for one.

    Args:
        fields: The message.
        pending: Names of the calls that wait, by id.
        functions: What was declared, by name.

    Returns:
        The ids that are answered.

    Raises:
        Refused: If a result is of no such call, or malformed.
    """
    known(fields, frozenset({"functionResponses"}), "tool_response")
    responses = messages_at(fields, "functionResponses")
    if not responses:
        raise invalid("tool_response.function_responses must not be empty.")
    ids: list[str] = []
    for response in responses:
        known(
            response,
            frozenset({"id", "name", "response", "scheduling", "willContinue", "parts"}),
            "tool_response.function_responses",
        )
        key = response.get("id")
        if not isinstance(key, str) or not key:
            raise invalid("tool_response.function_responses.id is required.")
        if key not in pending or key in ids:
            raise invalid(f"No function call with id {key} waits for a response.")
        if response.get("name") != pending[key]:
            raise invalid(f"Function call {key} is of {pending[key]}, not of {response.get('name')}.")
        if not isinstance(response.get("response"), dict):
            raise invalid("function_response.response must be an object.")
        scheduling = response.get("scheduling")
        if scheduling is not None and functions.get(pending[key], {}).get("behavior") != "NON_BLOCKING":
            raise invalid("scheduling is only supported for NON_BLOCKING functions.")
        if scheduling not in {None, "SCHEDULING_UNSPECIFIED", "INTERRUPT", "WHEN_IDLE", "SILENT"}:
            raise Refused(INVALID, "Invalid value at 'tool_response.function_responses.scheduling'")
        ids.append(key)
    return ids


def decoded(data: Any) -> bytes:
    """Base64.

    Raises:
        Refused: If it is none.
    """
    try:
        return b64decode(data, validate=True)
    except (Base64Error, ValueError, TypeError) as error:
        raise Refused(INVALID, "Invalid value (TYPE_BYTES): Base64 decoding failed.") from error
