"""AWS Signature Version 4: of a request, and of each message of an event stream in its body. Pure.

Sources: "Create a signed AWS API request" (IAM User Guide) for the request; the chain of signatures of event streams
(`STREAMING-AWS4-HMAC-SHA256-EVENTS`) as the AWS SDKs make it: each message signs the one before it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from urllib.parse import quote, urlsplit

from antiphon.transports.eventstream import encode_headers, framed

EVENTS = "STREAMING-AWS4-HMAC-SHA256-EVENTS"
"""What stands for the hash of a body that is a stream of signed messages."""
DATE, SIGNATURE = ":date", ":chunk-signature"
"""The headers of a signed message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who signs.

    Attributes:
        access_key_id: The key's name; it is no secret.
        secret_access_key: The secret.
        session_token: Goes with short-lived keys.
        expires_at: When a short-lived key ends, where that is known; with a time zone.
    """

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a signature is good for: one service in one region, on one day."""

    region: str
    service: str

    def on(self, moment: datetime) -> str:
        """The scope of a day, as it is signed."""
        return f"{moment:%Y%m%d}/{self.region}/{self.service}/aws4_request"

    def key(self, secret: str, moment: datetime) -> bytes:
        """The key of a day, made from the secret."""
        key = ("AWS4" + secret).encode()
        for part in self.on(moment).split("/"):
            key = _hmac(key, part)
        return key


def stamp(moment: datetime) -> str:
    """A moment as signatures have it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def canonical_request(method: str, url: str, headers: Mapping[str, str], payload_hash: str) -> str:
    """What is signed of a request.

    Args:
        method: In capitals.
        url: With the path encoded as it is sent. It is encoded once more here, as every service but S3 wants it.
        headers: All that are to be signed, `host` among them; names in lower case.
        payload_hash: The body's SHA-256 in hex, or what stands for it.
    """
    parts = urlsplit(url)
    pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
    query = "&".join(f"{name}={value}" for name, _, value in sorted(pairs))
    names = sorted(headers)
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in names]
    path = quote(parts.path or "/", safe="/~-._")
    return "\n".join([method, path, query, *lines, "", ";".join(names), payload_hash])


def request_signature(
    secret: str,
    scope: Scope,
    moment: datetime,
    *,
    method: str,
    url: str,
    headers: Mapping[str, str],
    payload_hash: str,
) -> str:
    """The signature of a request, in hex. Arguments as in `canonical_request`."""
    canonical = canonical_request(method, url, headers, payload_hash)
    text = "\n".join(["AWS4-HMAC-SHA256", stamp(moment), scope.on(moment), _sha256(canonical.encode())])
    return _hmac(scope.key(secret, moment), text).hex()


def signed_headers(
    credentials: Credentials,
    scope: Scope,
    moment: datetime,
    *,
    method: str,
    url: str,
    headers: Mapping[str, str],
    payload_hash: str = EVENTS,
) -> tuple[dict[str, str], str]:
    """The headers of a signed request.

    Args:
        credentials: Who signs.
        scope: For what.
        moment: When, in UTC.
        method: The request's method.
        url: Where it goes.
        headers: What else is sent, and signed; names in lower case.
        payload_hash: The body's SHA-256 in hex, or what stands for it.

    Returns:
        All headers to send beside `host`, and the signature, from which the chain of messages begins.
    """
    sent = {**headers, "x-amz-content-sha256": payload_hash, "x-amz-date": stamp(moment)}
    if credentials.session_token:
        sent["x-amz-security-token"] = credentials.session_token
    signed = {**sent, "host": urlsplit(url).netloc}
    signature = request_signature(
        credentials.secret_access_key,
        scope,
        moment,
        method=method,
        url=url,
        headers=signed,
        payload_hash=payload_hash,
    )
    sent["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key_id}/{scope.on(moment)}, "
        f"SignedHeaders={';'.join(sorted(signed))}, Signature={signature}"
    )
    return sent, signature


def event_signature(
    secret: str,
    scope: Scope,
    moment: datetime,
    *,
    before: str,
    payload: bytes,
    key: bytes | None = None,
    dated: bytes | None = None,
) -> bytes:
    """The signature of one message of a stream.

    Args:
        secret: The secret.
        scope: As the request's.
        moment: The message's `:date`, of whole milliseconds.
        before: The signature before it, in hex: the request's, or that of the last message.
        payload: The message that is wrapped, or nothing, which ends the stream.
        key: The key of the day, where it is at hand.
        dated: The message's `:date` as it stands in its headers, where it is at hand.
    """
    dated = encode_headers({DATE: moment}) if dated is None else dated
    text = "\n".join(
        [
            "AWS4-HMAC-SHA256-PAYLOAD",
            stamp(moment),
            scope.on(moment),
            before,
            _sha256(dated),
            _sha256(payload),
        ]
    )
    return _hmac(scope.key(secret, moment) if key is None else key, text)


class EventSigner:
    """Wraps messages in signed ones; each signature holds the one before it, so that their order cannot be changed.

    Args:
        credentials: As those of the request.
        scope: As that of the request.
        signature: The request's, in hex.
    """

    def __init__(self, credentials: Credentials, scope: Scope, signature: str) -> None:
        self._secret = credentials.secret_access_key
        self._scope = scope
        self._before = signature
        self._key: tuple[date | None, bytes] = (None, b"")

    def sign(self, payload: bytes, moment: datetime) -> bytes:
        """A message, signed, as bytes for the wire.

        Args:
            payload: An encoded message; nothing: the end of the stream, after which none may come.
            moment: The time, in UTC.
        """
        moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        day = moment.date()
        if self._key[0] != day:
            self._key = day, self._scope.key(self._secret, moment)
        dated = encode_headers({DATE: moment})
        signature = event_signature(
            self._secret, self._scope, moment, before=self._before, payload=payload, key=self._key[1], dated=dated
        )
        self._before = signature.hex()
        return framed(dated + _SIGNATURE_HEAD + signature, payload)


_SIGNATURE_HEAD = encode_headers({SIGNATURE: bytes(32)})[:-32]


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
