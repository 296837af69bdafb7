"""AWS Signature Version 4, as the receiving side checks it. Pure.

Source: "Authenticating Requests (AWS Signature Version 4)" and "Create a signed AWS API request", AWS IAM User Guide.
Written without botocore, so that a client that signs with botocore is checked by something else.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,\s]+)/(?P<date>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request,"
    r"\s*SignedHeaders=(?P<headers>[^,\s]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not believed: the error's code and text, as AWS words them; the status is 403."""

    code: str
    message: str


def signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    """The key of one day, region and service; `date` is `YYYYMMDD`."""
    key = b"AWS4" + secret.encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def check_signature(
    *,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    secrets: Mapping[str, str],
    region: str,
    service: str,
    payload_hash: str | None = None,
) -> Refusal | None:
    """Check a request's `authorization` header.

    Args:
        method: The HTTP method.
        target: Path and query, as they were sent.
        headers: The headers, with names in lower case.
        body: The body.
        secrets: Secret keys by access key id.
        region: The region that the endpoint is in.
        service: The service's signing name.
        payload_hash: What stands for the body's hash where it is signed otherwise, as in event streams.

    Returns:
        None when the signature is right.
    """
    given = headers.get("authorization")
    if given is None:
        return Refusal("MissingAuthenticationTokenException", "Missing Authentication Token")
    parts = _AUTHORIZATION.fullmatch(given)
    if parts is None or "x-amz-date" not in headers:
        return Refusal(
            "IncompleteSignatureException", "Authorization header requires 'Credential', 'Signature' and more."
        )
    if parts["key"] not in secrets:
        return Refusal("UnrecognizedClientException", "The security token included in the request is invalid.")
    if parts["region"] != region:
        return Refusal(
            "InvalidSignatureException", f"Credential should be scoped to a valid region, not {parts['region']!r}."
        )
    if parts["service"] != service:
        return Refusal("InvalidSignatureException", f"Credential should be scoped to correct service: {service!r}.")
    names = parts["headers"].split(";")
    if names != sorted(names) or "host" not in names or any(name not in headers for name in names):
        return Refusal("InvalidSignatureException", "The signed headers are not those of the request.")
    path, _, query = target.partition("?")
    canonical = "\n".join(
        [
            method,
            quote(path, safe="/-_.~"),  # the path is encoded on the wire already, and once more for the signature
            "&".join(sorted(query.split("&"))) if query else "",
            *(f"{name}:{' '.join(headers[name].split())}" for name in names),
            "",
            parts["headers"],
            payload_hash or headers.get("x-amz-content-sha256") or sha256(body).hexdigest(),
        ]
    )
    scope = f"{parts['date']}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, sha256(canonical.encode()).hexdigest()])
    right = hmac.new(
        signing_key(secrets[parts["key"]], parts["date"], region, service), text.encode(), sha256
    ).hexdigest()
    if not hmac.compare_digest(right, parts["signature"]) or not headers["x-amz-date"].startswith(parts["date"]):
        return Refusal(
            "InvalidSignatureException",
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access "
            "Key and signing method. Consult the service documentation for details.",
        )
    return None
