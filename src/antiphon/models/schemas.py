"""JSON Schemas of tools, as all providers take them. Pure.

A tool may come with any schema of an object: its author's, or a remote server's. Providers are narrower. OpenAI refuses an
object without `properties` at the top and an array without `items` anywhere; OpenAI and Anthropic refuse `anyOf`, `oneOf` and
`allOf` at the top.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

_ONE = ("items", "additionalProperties", "not", "contains", "if", "then", "else", "unevaluatedItems", "propertyNames")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_NOT_ABOVE = {"anyOf", "oneOf", "allOf", "enum", "const", "not", "$ref"}


def object_schema(schema: Any) -> dict[str, Any]:
    """A tool's schema with an object's `type` and `properties` at the top, and with `items` in every array.

    What is combined at the top becomes one object: properties of `allOf` and of each alternative stand side by side, and those
    are required that every alternative requires. A model is told less by that, and the tool still checks its input.

    Args:
        schema: The schema; it is left as it is.

    >>> object_schema({"anyOf": [{"required": ["a"]}, {"properties": {"b": {"type": "array"}}}]})
    {'type': 'object', 'properties': {'b': {'type': 'array', 'items': {}}}}
    """
    given: Mapping[str, Any] = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
    properties, required = _merged(given, given, ())
    made: dict[str, Any] = {"type": "object", "properties": properties}
    made |= {key: value for key, value in given.items() if key not in _NOT_ABOVE and key not in made}
    made.pop("required", None)
    if required:
        made["required"] = required
    return cast("dict[str, Any]", _with_items(made))


def _merged(
    schema: Mapping[str, Any], root: Mapping[str, Any], within: tuple[str, ...]
) -> tuple[dict[str, Any], list[str]]:
    """The properties of an object's schema and those that are required, whatever it is combined of.

    Args:
        schema: The schema.
        root: Where its references lead.
        within: The references that led here.
    """
    properties: dict[str, Any] = dict(schema.get("properties") or {})
    required: list[str] = list(schema.get("required") or ())
    reference = schema.get("$ref")
    parts = list(_mappings(schema.get("allOf")))
    if isinstance(reference, str) and reference not in within:
        within = (*within, reference)
        parts.append(_found(reference, root))
    for part in parts:
        more, needed = _merged(part, root, within)
        properties = {**more, **properties}
        required += needed
    for name in ("anyOf", "oneOf"):
        alternatives = [_merged(part, root, within) for part in _mappings(schema.get(name))]
        for key in dict.fromkeys(key for more, _ in alternatives for key in more):
            kinds = [more[key] for more, _ in alternatives if key in more]
            distinct = [kind for at, kind in enumerate(kinds) if kind not in kinds[:at]]
            properties.setdefault(key, distinct[0] if len(distinct) == 1 else {"anyOf": distinct})
        if alternatives:
            first, *others = (needed for _, needed in alternatives)
            required += [key for key in first if all(key in needed for needed in others)]
    return properties, list(dict.fromkeys(required))


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    for part in cast("list[object]", value) if isinstance(value, list) else []:
        if isinstance(part, Mapping):
            yield cast("Mapping[str, Any]", part)


def _found(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference within the schema leads to; empty where it leads out of it, or nowhere."""
    at: Mapping[str, Any] = root if reference.startswith("#") else {}
    for step in reference.split("/")[1:]:
        inner: object = at.get(step)
        at = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else {}
    return at


def _with_items(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema  # True, False
    made = dict[str, Any](cast("Mapping[str, Any]", schema))
    for key in _ONE:
        if key in made:
            made[key] = _with_items(made[key])
    for key in _LISTS:
        if isinstance(made.get(key), list):
            made[key] = [_with_items(part) for part in made[key]]
    for key in _MAPS:
        if isinstance(made.get(key), Mapping):
            made[key] = {name: _with_items(part) for name, part in made[key].items()}
    kinds = made.get("type")
    if "items" not in made and (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)):
        made["items"] = {}
    return made
