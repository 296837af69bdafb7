"""What the Gemini API refuses, in its own words. Pure.

Sources: the API's reference, google.rpc, and error texts that users of the API have reported.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

_FIELDS = {
    *["contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent"],
    *["labels", "serviceTier", "store", "model"],
}
_DATA = {
    *["text", "inlineData", "functionCall", "functionResponse", "fileData", "executableCode", "codeExecutionResult"],
    *["toolCall", "toolResponse"],
}
_BESIDE = {"thought", "thoughtSignature", "videoMetadata", "partMetadata", "mediaResolution"}
_NAMES = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_UNSIGNED = {b"skip_thought_signature_validator", b"context_engineering_is_the_way_to_go"}
_SIGNED = b"loopback:"
_PATH = re.compile(r"/v1(?:beta)?/models/([^/:]+):(generateContent|streamGenerateContent)")


class Refusal(Exception):
    """A request that the API refuses."""

    def __init__(self, code: int, status: str, message: str, *details: dict[str, Any]) -> None:
        super().__init__(message)
        self.code, self.status, self.message, self.details = code, status, message, details

    def body(self) -> dict[str, Any]:
        """The error as the API writes it."""
        error: dict[str, Any] = {"code": self.code, "message": self.message, "status": self.status}
        if self.details:
            error["details"] = list(self.details)
        return {"error": error}


def detail(kind: str, **fields: Any) -> dict[str, Any]:
    """A detail of an error: `ErrorInfo`, `RetryInfo`, ..."""
    return {"@type": f"type.googleapis.com/google.rpc.{kind}", **fields}


def sign(number: int) -> str:
    """A signature of a thought, in base64: any server of ours can check it."""
    digest = hashlib.sha256(b"antiphon loopback %d" % number).digest()
    return b64encode(_SIGNED + b"%d:" % number + digest).decode()


def _is_signed(text: object) -> bool:
    try:
        data = b64decode(str(text).replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        return False
    number = data.removeprefix(_SIGNED).partition(b":")[0]
    return data in _UNSIGNED or (number.isdigit() and b64decode(sign(int(number))) == data)


def check_target(path: str, model_id: str) -> str:
    """The method that is called: `generateContent` or `streamGenerateContent`."""
    found = _PATH.fullmatch(path)
    if found is None:
        raise Refusal(404, "NOT_FOUND", "Requested entity was not found.")
    if found[1] != model_id:
        version = path.split("/")[1]
        raise Refusal(
            404,
            "NOT_FOUND",
            f"models/{found[1]} is not found for API version {version}, or is not supported for {found[2]}. Call "
            "ModelService.ListModels to see the list of available models and their supported methods.",
        )
    return found[2]


def check_key(given: str | None, key: str) -> None:
    """Raise what is wrong with the key."""
    if not given:
        raise Refusal(
            403,
            "PERMISSION_DENIED",
            "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other "
            "form of API consumer identity to call this API.",
        )
    if given != key:
        raise _invalid(
            "API key not valid. Please pass a valid API key.",
            detail(
                "ErrorInfo",
                reason="API_KEY_INVALID",
                domain="googleapis.com",
                metadata={"service": "generativelanguage.googleapis.com"},
            ),
            detail("LocalizedMessage", locale="en-US", message="API key not valid. Please pass a valid API key."),
        )


def check_body(value: Any, *, context_tokens: int, signatures: bool) -> dict[str, Any]:
    """The request with names in camel case. Raises the first thing that is wrong with it.

    Args:
        value: The body.
        context_tokens: How long a conversation may be.
        signatures: Whether calls must have the signature of their thought, as Gemini 3 and later want.
    """
    if not isinstance(value, dict):
        raise _invalid("Invalid JSON payload received. The root element must be an object.")
    request = cast("dict[str, Any]", _camel(value))
    for name in request:
        if name not in _FIELDS:
            raise _unknown(name, "")
    contents: list[dict[str, Any]] = request.get("contents") or []
    if not contents:
        raise _invalid("* GenerateContentRequest.contents: contents is not specified\n")
    _check_tools(request.get("tools") or [])
    for index, content in enumerate(contents):
        _check_content(f"GenerateContentRequest.contents[{index}]", content)
    _check_turns(contents)
    if signatures:
        _check_signatures(contents)
    tokens = count_tokens(request)
    if tokens > context_tokens:
        raise _invalid(
            f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({context_tokens})."
        )
    return request


def count_tokens(request: Mapping[str, Any]) -> int:
    """About how long a request is: four characters of what it says are a token."""
    return sum(map(len, _texts([request.get("systemInstruction"), request.get("contents")]))) // 4 + 1


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in cast("Iterable[Any]", value):
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            if key not in {"role", "data", "thoughtSignature", "mimeType", "id", "fileUri"}:
                yield from _texts(item)


def _camel(value: Any, *, inside: str = "") -> Any:
    """Google reads names in either case; what lies within arguments, results and schemas is the caller's own."""
    if inside in {"args", "response", "parametersJsonSchema", "responseJsonSchema", "partMetadata"}:
        return value
    if isinstance(value, list):
        return [_camel(item) for item in cast("Iterable[Any]", value)]
    if isinstance(value, dict):
        made: dict[str, Any] = {}
        for key, item in cast("dict[str, Any]", value).items():
            first, *others = key.split("_")
            name = first + "".join(other.capitalize() for other in others)
            made[name] = _camel(item, inside=name)
        return made
    return value


def _invalid(message: str, *details: dict[str, Any]) -> Refusal:
    return Refusal(400, "INVALID_ARGUMENT", message, *details)


def _unknown(name: str, at: str) -> Refusal:
    message = f'Invalid JSON payload received. Unknown name "{name}"{at and f" at {at!r}"}: Cannot find field.'
    return _invalid(message, detail("BadRequest", fieldViolations=[{"field": at, "description": message}]))


def _check_tools(tools: list[dict[str, Any]]) -> None:
    names: set[str] = set()
    for tool in tools:
        for place, declared in enumerate(tool.get("functionDeclarations") or []):
            at = f"GenerateContentRequest.tools[0].function_declarations[{place}]"
            name = declared.get("name", "")
            if not _NAMES.fullmatch(name):
                raise _invalid(
                    f"* {at}.name: Invalid function name. Must start with a letter or an underscore. Must be alphanumeric "
                    "(a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128.\n"
                )
            if name in names:
                raise _invalid(f"Duplicate function declaration found: {name}")
            names.add(name)
            schema = declared.get("parametersJsonSchema")
            if schema is not None and schema.get("type") != "object":
                raise _invalid(f"* {at}.parameters_json_schema: must describe an object\n")


def _check_content(at: str, content: Mapping[str, Any]) -> None:
    if content.get("role", "user") not in {"user", "model"}:
        raise _invalid("Please use a valid role: user, model.")
    parts: list[dict[str, Any]] = content.get("parts") or []
    if not parts:
        raise _invalid(f"* {at}.parts: contents.parts must not be empty.\n")
    for place, part in enumerate(parts):
        for name in part:
            if name not in _DATA | _BESIDE:
                raise _unknown(name, f"{at}.parts[{place}]")
        if not _DATA & part.keys():
            raise _invalid(f"* {at}.parts[{place}].data: required oneof field 'data' must have one initialized field\n")
        for kind in ("functionCall", "functionResponse"):
            if kind in part and not part[kind].get("name"):
                field = "function_call" if kind == "functionCall" else "function_response"
                raise _invalid(f"* {at}.parts[{place}].{field}.name: [REQUIRED_FIELD_MISSING]\n")


def _calls(content: Mapping[str, Any]) -> int:
    return sum("functionCall" in part for part in content["parts"])


def _results(content: Mapping[str, Any]) -> int:
    return sum("functionResponse" in part for part in content["parts"])


def _check_turns(contents: list[dict[str, Any]]) -> None:
    for index, content in enumerate(contents):
        before = contents[index - 1] if index else None
        if _calls(content) and (before is None or before.get("role", "user") != "user"):
            raise _invalid(
                "Please ensure that function call turn comes immediately after a user turn or after a function response "
                "turn."
            )
        if _results(content):
            if before is None or not _calls(before):
                raise _invalid(
                    "Please ensure that function response turn comes immediately after a function call turn."
                )
            if _results(content) != _calls(before):
                raise _mismatch()
        elif before is not None and _calls(before):
            raise _mismatch()
    if _calls(contents[-1]):
        raise _mismatch()


def _mismatch() -> Refusal:
    return _invalid(
        "Please ensure that the number of function response parts is equal to the number of function call parts of the "
        "function call turn."
    )


def _check_signatures(contents: list[dict[str, Any]]) -> None:
    """Every signature must be Google's; in the current turn the first call of each step must have one."""
    asked = max(
        (at for at, content in enumerate(contents) if content.get("role", "user") == "user" and not _results(content)),
        default=0,
    )
    for index, content in enumerate(contents):
        for part in content["parts"]:
            if "thoughtSignature" in part and not _is_signed(part["thoughtSignature"]):
                raise _invalid("Corrupted thought signature.")
        if index <= asked:
            continue
        first = next((part for part in content["parts"] if "functionCall" in part), None)
        if first is not None and "thoughtSignature" not in first:
            raise _invalid(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
                "correctly, and missing thought_signature may lead to degraded model performance. Additional data, function "
                f"call `default_api:{first['functionCall']['name']}` , position {index + 1}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )
