"""Sessions that the client keeps: what it is given, and what it sends back."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, cast

from antiphon.errors import InvalidInputError, NotJsonError, SnapshotException, StateSignatureError
from antiphon.ids import check_id, new_uuid7
from antiphon.jsonable import copy_json, decode_json, encode_json
from antiphon.snapshot.envelope import SCHEMA_VERSION, Snapshot
from antiphon.snapshot.fields import ALL_FIELDS

_OWN = ("session_id", "usage", "artifacts", "state_version", "signature")
_KNOWN = frozenset({*ALL_FIELDS, *_OWN} - {"system_prompt"})


def client_view(session_id: str, snapshot: Snapshot, usage: dict[str, Any]) -> dict[str, Any]:
    """A whole session as an object, for `state_transform` and the client: the snapshot's data, `session_id` and `usage`."""
    data: dict[str, Any] = copy_json(snapshot.data, "state")
    return {"session_id": session_id, **data, "usage": dict(usage)}


def given_out(view: dict[str, Any], session_id: str, key: bytes | None) -> dict[str, Any]:
    """What the client keeps: the view as plain JSON (bytes as marked base64), with its session, and signed.

    Raises:
        NotJsonError: If a transform has put something else in it.
    """
    stamped = {**view, "session_id": session_id}
    stamped.pop("signature", None)
    plain: dict[str, Any] = json.loads(encode_json(copy_json(stamped, "state")))
    return plain if key is None else {**plain, "signature": _signature(plain, key)}


def taken_back(given: object, key: bytes | None) -> tuple[str, Snapshot, dict[str, Any]]:
    """What a client sends: the session's id (a new one where it has none), its snapshot and its usage.

    Raises:
        StateSignatureError: If a key is given, and the state is not one that `given_out` signed with it.
        InvalidInputError: If the state is malformed.
    """
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"state is {type(given).__name__}, not an object")
    entry = dict(cast("Mapping[str, Any]", given))
    signature = entry.pop("signature", None)
    if unknown := sorted(set(entry) - _KNOWN):
        raise InvalidInputError(f"state has the key {unknown[0]!r}; known are {sorted(_KNOWN)!r}")
    try:
        data = json.dumps(entry, allow_nan=False).encode()
        if key is not None and not hmac.compare_digest(str(signature).encode(), _signature(entry, key).encode()):
            raise StateSignatureError("the state's signature is wrong: it was changed, or another server gave it out")
        decoded: dict[str, Any] = decode_json(data)
    except StateSignatureError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"state is not JSON: {error}") from error
    session_id = decoded.pop("session_id", None)
    session_id = new_uuid7() if session_id is None else check_id("state.session_id", session_id)
    usage: Any = decoded.pop("usage", None) or {}
    if not isinstance(usage, dict):
        raise InvalidInputError(f"state.usage is {type(usage).__name__}, not an object")
    try:
        return session_id, Snapshot("agent", SCHEMA_VERSION, decoded, {}), cast("dict[str, Any]", usage)
    except (SnapshotException, NotJsonError) as error:
        raise InvalidInputError(f"state cannot be used: {error}") from error


def _signature(plain: dict[str, Any], key: bytes) -> str:
    """HMAC-SHA256 of the object, in one form however a JSON library has written it meanwhile."""
    text = json.dumps(_canonical(plain), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hmac.new(key, text.encode("ascii"), hashlib.sha256).hexdigest()


def _canonical(value: Any) -> Any:
    # A client in JavaScript writes 1.0 as 1.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value
