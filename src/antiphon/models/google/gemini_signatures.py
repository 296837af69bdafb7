"""Thought signatures of Gemini in the history. Pure.

Gemini signs its thoughts, and wants each signature back in the part in which it came: on calls of tools it insists. On a call
it is kept beside the call's input, in `reasoningSignature`; elsewhere in a block of reasoning, with a mark that tells other
providers' models (and ours) whose it is. Source: ai.google.dev/gemini-api/docs/thought-signatures.
"""

from __future__ import annotations

from base64 import b64decode, b64encode

ON_CALLS = "reasoningSignature"
"""Where a call keeps its signature, as bytes."""
UNSIGNED = b"skip_thought_signature_validator"
"""What stands in place of the signature of a call that Gemini did not make."""

_MARK = "gemini:"


def to_text(signature: bytes) -> str:
    """A signature as blocks of reasoning keep it."""
    return _MARK + b64encode(signature).decode("ascii")


def from_text(text: object) -> bytes | None:
    """The signature of a block of reasoning; None when it is another provider's.

    >>> from_text(to_text(b"abc")), from_text("abc")
    (b'abc', None)
    """
    if not isinstance(text, str) or not text.startswith(_MARK):
        return None
    try:
        return b64decode(text.removeprefix(_MARK), validate=True)
    except ValueError:
        return None
