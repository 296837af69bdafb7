"""What botocore writes into its log is kept free of secrets.

At the level of DEBUG it writes requests with all their headers: the token of a session, and a bearer token.
"""

from __future__ import annotations

import logging
import re

_LOGGERS = ("botocore.auth", "botocore.awsrequest", "botocore.endpoint", "botocore.hooks")
_SECRET = re.compile(r"(x-amz-security-token\W{1,6}?(?:b')?|\bbearer )([\w+/=.~-]{8,})", re.IGNORECASE)


class _Discreet(logging.Filter):
    """Lets every record through, without the secrets in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        told = record.getMessage()
        kept = _SECRET.sub(r"\1***", told)
        if kept != told:
            record.msg, record.args = kept, ()
        return True


_DISCREET = _Discreet()


def hush_secrets() -> None:
    """See to it, once for the process: who asks for the records of these loggers gets them without secrets."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_DISCREET)  # adds it once
