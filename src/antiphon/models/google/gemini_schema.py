"""JSON Schemas of tools as Gemini takes them. Pure.

Source: the schemas in the Gemini API's reference; keywords that it does not name are refused or left unread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_KEPT = {
    *["$ref", "type", "format", "title", "description", "enum", "required", "propertyOrdering"],
    *["minItems", "maxItems", "minimum", "maximum"],
}
_ONE = {"items", "additionalProperties"}
_LISTS = {"anyOf", "oneOf", "prefixItems"}
_MAPS = {"properties", "$defs"}


def gemini_schema(schema: Any) -> Any:
    """A schema with the keywords that Gemini knows.

    `const` becomes an `enum`, `allOf` is merged into its place, `definitions` become `$defs`, exclusive bounds of whole
    numbers become inclusive ones; other keywords, such as `pattern` and `default`, are left out.

    >>> gemini_schema({"const": "a", "pattern": "a*"})
    {'enum': ['a']}
    """
    if not isinstance(schema, Mapping):
        return schema
    given = _merged(cast("Mapping[str, Any]", schema))
    made: dict[str, Any] = {}
    for key, value in given.items():
        if key == "$ref":
            made[key] = str(value).replace("#/definitions/", "#/$defs/")
        elif key in _KEPT:
            made[key] = value
        elif key in _ONE:
            made[key] = gemini_schema(value)
        elif key in _LISTS:
            made[key] = [gemini_schema(item) for item in value]
        elif key in _MAPS or key == "definitions":
            named = {name: gemini_schema(item) for name, item in value.items()}
            made["$defs" if key == "definitions" else key] = named
        elif key == "const":
            made["enum"] = [value]
    if given.get("type") == "integer":
        if isinstance(given.get("exclusiveMinimum"), int):
            made["minimum"] = given["exclusiveMinimum"] + 1
        if isinstance(given.get("exclusiveMaximum"), int):
            made["maximum"] = given["exclusiveMaximum"] - 1
    return made


def _merged(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with the parts of its `allOf` in it."""
    made = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema.get("allOf", []):
        for key, value in _merged(part).items():
            if key == "properties":
                made[key] = {**made.get(key, {}), **value}
            elif key == "required":
                made[key] = [*made.get(key, []), *(name for name in value if name not in made.get(key, []))]
            else:
                made.setdefault(key, value)
    return made
