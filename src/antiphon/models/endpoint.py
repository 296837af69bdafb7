"""What the way to a provider's HTTP endpoint needs, whichever provider it is: a key, trust, and words for what failed."""

from __future__ import annotations

import inspect
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit, urlunsplit

from antiphon.clock import Clock
from antiphon.errors import InvalidInputError, ModelConnectionError, ModelCredentialsError

ApiKey = str | Callable[[], str | Awaitable[str]]
"""A key, or a function (also `async`) that gives the one that is valid now: it is called for each attempt."""


_SHORTEST_SECRET = 8


def variables(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    """Where variables are looked up: what was given, else the environment of the process."""
    return os.environ if environ is None else environ


class KeySource:
    """A key, wherever it comes from. It is told to nobody but who awaits it.

    Args:
        given: What the constructor was given.
        names: Environment variables that may hold it, the first of them first.
        environ: The environment.

    Raises:
        ModelCredentialsError: If there is no key.
    """

    def __init__(self, given: ApiKey | None, *, names: Sequence[str], environ: Mapping[str, str]) -> None:
        found = given or next((environ[name] for name in names if environ.get(name, "").strip()), None)
        if not found:
            raise ModelCredentialsError(f"no key: give api_key=..., or set {' or '.join(names)}")
        self._key: ApiKey = _checked(found) if isinstance(found, str) else found

    async def current(self) -> str:
        """The key for the next attempt.

        Raises:
            ModelCredentialsError: If the function gave none.
        """
        if isinstance(self._key, str):
            return self._key
        given = self._key()
        key = await given if inspect.isawaitable(given) else given
        if not isinstance(key, str) or not key.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelCredentialsError("api_key was called and gave no key")
        return _checked(key)


def _checked(key: str) -> str:
    # HTTP libraries show a header that they refuse, so a key that makes none must not get that far.
    key = key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ModelCredentialsError("the key has characters that no key has, such as a line break: check api_key")
    return key


def checked_url(url: str) -> str:
    """The URL without slashes at its end.

    Raises:
        InvalidInputError: If it is not one of HTTP.
    """
    if not url.startswith(("http://", "https://")):
        raise InvalidInputError(f"base_url={url!r} does not begin with http:// or https://")
    return url.rstrip("/")


def address_of(url: str) -> str:
    """A URL as it may be told: without a user, a password or a query.

    >>> address_of("https://me:secret@example.org/v1/?key=secret")
    'https://example.org/v1'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def system_trust() -> ssl.SSLContext | None:
    """Whom the system trusts, `SSL_CERT_FILE` heeded; None on a system without certificates: SDKs bring their own.

    To read the certificates costs some 20 ms, so a model does it once and not for each of its clients.
    """
    paths = ssl.get_default_verify_paths()
    return ssl.create_default_context() if paths.cafile or paths.capath else None


def origin_of(error: BaseException) -> BaseException:
    """The innermost cause of an error."""
    seen = {id(error)}
    while True:
        inner = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if inner is None or id(inner) in seen:
            return error
        seen.add(id(inner))
        error = inner


def unreachable(error: BaseException, address: str, key: str) -> ModelConnectionError:
    """What a failure of the network comes to. It is passing, unless it is one of trust."""
    cause = origin_of(error)
    if isinstance(cause, ssl.SSLError) or "[SSL" in str(
        cause
    ):  # HTTP libraries pass the words on, not always the error
        return ModelConnectionError(
            f"{address} cannot be trusted: {cause}: give tls=..., or name its authority in SSL_CERT_FILE"
        )
    reason = without_key(str(cause) or type(cause).__name__, key)
    return ModelConnectionError(
        f"{address} cannot be reached, or broke off: {reason}: check base_url and the network", passing=True
    )


def without_key(text: str, key: str) -> str:
    """A text in which the key cannot be read.

    A key of a few characters is no secret, but what people give to servers that ask for none: words stay readable.

    >>> without_key("no such key: sk-12345678", "sk-12345678"), without_key("none of it", "none")
    ('no such key: ***', 'none of it')
    """
    return text.replace(key, "***") if len(key) >= _SHORTEST_SECRET else text


def retry_after_of(value: str | None, clock: Clock) -> float | None:
    """The seconds that a `retry-after` header asks for (RFC 9110, 10.2.3: a number, or a date); None: it says nothing."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - clock.utc()).total_seconds())
    except (ValueError, TypeError):
        return None
