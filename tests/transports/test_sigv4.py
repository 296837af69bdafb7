"""AWS signatures, held against botocore's signer and against AWS's published example."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given
from hypothesis import strategies as st

from antiphon.transports.eventstream import Decoder, encode_message
from antiphon.transports.sigv4 import (
    DATE,
    EVENTS,
    SIGNATURE,
    Credentials,
    EventSigner,
    Scope,
    event_signature,
    request_signature,
    signed_headers,
)

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEYS = Credentials(access_key_id="AKIDEXAMPLE", secret_access_key=SECRET)
MOMENT = datetime(2026, 11, 30, 12, 36, 0, 123456, tzinfo=UTC)
SCOPE = Scope(region="us-east-1", service="bedrock")
EMPTY = hashlib.sha256(b"").hexdigest()


def test_the_published_example_has_its_published_signature():
    # "get-vanilla" of the Signature Version 4 test suite.
    signature = request_signature(
        SECRET,
        Scope(region="us-east-1", service="service"),
        datetime(2015, 8, 30, 12, 36, tzinfo=UTC),
        method="GET",
        url="https://example.amazonaws.com/",
        headers={"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"},
        payload_hash=EMPTY,
    )
    assert signature == "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"


def botocore_authorization(url: str, headers: dict[str, str], token: str | None) -> str:
    request = AWSRequest(method="POST", url=url, headers=headers)
    request.context["timestamp"] = headers["X-Amz-Date"]
    signer = SigV4Auth(BotoCredentials("AKIDEXAMPLE", SECRET, token), "bedrock", "us-east-1")
    canonical = signer.canonical_request(request)
    signature = signer.signature(signer.string_to_sign(request, canonical), request)
    names = signer.signed_headers(signer.headers_to_sign(request))
    return f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={names}, Signature={signature}"


segments = st.text("abcXYZ019-._~%:", min_size=1, max_size=12).filter(lambda text: set(text) != {"."})
values = st.text("abc XYZ;=/,.", min_size=1, max_size=20).map(str.strip).filter(bool)


@given(segments, st.dictionaries(st.sampled_from(["accept", "content-type", "x-amz-target"]), values), st.booleans())
def test_a_request_is_signed_as_botocore_signs_it(segment, headers, with_token):
    from urllib.parse import quote

    token = "a-session-token" if with_token else None
    keys = Credentials(access_key_id="AKIDEXAMPLE", secret_access_key=SECRET, session_token=token)
    url = f"https://bedrock-runtime.us-east-1.amazonaws.com/model/{quote(segment, safe='')}/invoke"
    sent, signature = signed_headers(keys, SCOPE, MOMENT, method="POST", url=url, headers=headers)
    theirs = {**headers, "X-Amz-Content-SHA256": EVENTS, "X-Amz-Date": "20261130T123600Z"}
    if token:
        theirs["X-Amz-Security-Token"] = token
    assert sent["authorization"] == botocore_authorization(url, theirs, token)
    assert sent["authorization"].endswith(signature)


def test_each_message_signs_the_one_before_it():
    signer = EventSigner(KEYS, SCOPE, "0" * 64)
    payloads = [encode_message({":event-type": "chunk"}, b"one"), encode_message({}, b"two"), b""]
    decoder = Decoder()
    before = "0" * 64
    for index, payload in enumerate(payloads):
        moment = MOMENT + timedelta(seconds=index)
        [message] = decoder.feed(signer.sign(payload, moment))
        assert message.payload == payload
        assert list(message.headers) == [DATE, SIGNATURE]
        date, signature = message.headers[DATE], message.headers[SIGNATURE]
        assert date == moment.replace(microsecond=123000)
        assert signature == event_signature(SECRET, SCOPE, date, before=before, payload=payload)
        before = signature.hex()


def test_a_message_is_signed_as_the_aws_sdk_signs_it():
    # Made with aws-sdk-signers 0.4.0 (`AsyncEventSigner.sign`), with its date fixed.
    signature = event_signature(
        "secret", SCOPE, datetime(2026, 11, 30, 12, 36, tzinfo=UTC), before="ab" * 32, payload=b"payload"
    )
    assert signature.hex() == "00b82e133c9a13fa31bdc6c46210d786e49578714173b712e8046710522bf451"


@pytest.mark.parametrize(
    "value",
    [repr(KEYS), str(KEYS), repr(Credentials(access_key_id="a", secret_access_key=SECRET, session_token=SECRET))],
)
def test_credentials_do_not_show_their_secrets(value):
    assert SECRET not in value
