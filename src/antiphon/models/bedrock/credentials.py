"""Who signs a live connection to Bedrock, asked anew for each one: a short-lived key may have been replaced meanwhile."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from antiphon.errors import InvalidInputError, InvalidTypeError, MissingExtraError, ModelCredentialsError
from antiphon.iothread import run_in_worker
from antiphon.models.bedrock.access import AwsCredentials
from antiphon.transports.sigv4 import Credentials

if TYPE_CHECKING:
    import boto3

DEFAULT_REGION = "us-east-1"

SigningKeys = Credentials | AwsCredentials
"""Keys, as a value or as a dict; a dict may have `expires_at`, a datetime with a time zone, too."""
KeySource = SigningKeys | Callable[[], SigningKeys | Awaitable[SigningKeys]]
"""Keys, or a function that gives those that are valid now. Called for each connection; on a worker thread, unless it is
`async`."""


class KeyRing:
    """Where the keys and the region come from.

    Args:
        boto_session: The session to use: its credentials, region and profile.
        region: The region; else `AWS_REGION`, `AWS_DEFAULT_REGION`, the profile's, or `us-east-1`.
        credentials: Keys, or what gives them.
        environ: The environment to read instead of the process's own, keys included. With it, and with `credentials`, no
            other source of credentials is asked.

    Raises:
        MissingExtraError: If boto3 is not installed.
        InvalidInputError: If arguments exclude one another.
    """

    def __init__(
        self,
        *,
        boto_session: boto3.Session | None,
        region: str | None,
        credentials: KeySource | None,
        environ: Mapping[str, str] | None,
    ) -> None:
        if find_spec("boto3") is None:
            raise MissingExtraError("boto3", "bedrock")
        if boto_session is not None and (region is not None or credentials is not None or environ is not None):
            raise InvalidInputError(
                "give boto_session, or region, credentials and environ: a session has a region and credentials of its own"
            )
        self._session = boto_session
        self._region = region
        self._credentials = credentials
        self._environ = environ

    @property
    def region(self) -> str:
        """The region, as far as it is known without asking a profile."""
        variables = os.environ if self._environ is None else self._environ
        if self._session is not None:
            return str(self._session.region_name or DEFAULT_REGION)
        return self._region or variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION") or DEFAULT_REGION

    async def current(self) -> Credentials:
        """The keys that are valid now.

        Raises:
            ModelCredentialsError: If there are none, or whoever gives them fails.
        """
        source = self._credentials
        if source is None:
            found = _of_environment(self._environ) if self._environ is not None else await run_in_worker(self._asked)
        elif callable(source):
            found = await _called(source)
        else:
            found = _checked(source)
        if found is None:
            raise ModelCredentialsError(
                "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give credentials=, "
                "environ= or boto_session="
            )
        return found

    def _asked(self) -> Credentials | None:
        """Ask botocore, which may read files, ask the network, or start a program."""
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session

        try:
            session: Any = self._session if self._session is not None else Session()
            found = session.get_credentials()
            if found is None:
                return None
            keys = found.get_frozen_credentials()
            expires_at = getattr(found, "_expiry_time", None)  # botocore tells it nowhere else
        except BotoCoreError as error:
            raise ModelCredentialsError(f"there are no usable AWS credentials: {error}") from error
        return Credentials(
            access_key_id=keys.access_key,
            secret_access_key=keys.secret_key,
            session_token=keys.token or None,
            expires_at=expires_at if isinstance(expires_at, datetime) else None,
        )


async def _called(source: Callable[[], SigningKeys | Awaitable[SigningKeys]]) -> Credentials:
    try:
        given = source() if inspect.iscoroutinefunction(source) else await run_in_worker(source)
        return _checked(await given if inspect.isawaitable(given) else given)
    except (ModelCredentialsError, InvalidTypeError):
        raise
    except Exception as error:  # the user's own function: whatever it raises, there are no keys
        raise ModelCredentialsError(f"credentials() gave no keys: {type(error).__name__}: {error}") from error


def _checked(given: object) -> Credentials:
    """Keys from whatever form they were given in. No message tells a secret.

    Raises:
        InvalidTypeError: If it is none of these forms.
        ModelCredentialsError: If a key is empty.
    """
    if isinstance(given, Credentials):
        found = given
    elif isinstance(given, Mapping):
        fields = cast("Mapping[str, Any]", given)
        names = {"access_key_id", "secret_access_key", "session_token", "expires_at"}
        if unknown := sorted(set(fields) - names):
            raise InvalidTypeError(f"credentials have {sorted(names)}, and no {unknown!r}")
        found = Credentials(
            access_key_id=fields.get("access_key_id") or "",
            secret_access_key=fields.get("secret_access_key") or "",
            session_token=fields.get("session_token") or None,
            expires_at=fields.get("expires_at"),
        )
    else:
        raise InvalidTypeError(f"credentials are a dict or Credentials, not {type(given).__name__}")
    if not found.access_key_id or not found.secret_access_key:
        raise ModelCredentialsError("credentials need access_key_id and secret_access_key: one of them is empty")
    if found.expires_at is not None and found.expires_at.tzinfo is None:
        raise InvalidTypeError(f"credentials: expires_at={found.expires_at!r} has no time zone")
    return found


def _of_environment(variables: Mapping[str, str]) -> Credentials | None:
    key, secret = variables.get("AWS_ACCESS_KEY_ID"), variables.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        return None
    return Credentials(
        access_key_id=key, secret_access_key=secret, session_token=variables.get("AWS_SESSION_TOKEN") or None
    )
