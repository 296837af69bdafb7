"""Who asks Bedrock, and where: credentials, region and endpoint, made into a client of boto3."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from antiphon.errors import InvalidInputError, MissingExtraError, ModelCredentialsError
from antiphon.models.bedrock.discretion import hush_secrets
from antiphon.models.bedrock.line import hold_connections

if TYPE_CHECKING:
    import boto3
    from botocore.config import Config

DEFAULT_REGION = "us-west-2"
CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 120
_CONNECTIONS = 50


class AwsCredentials(TypedDict):
    """Keys of an AWS account; `session_token` belongs to keys that live for a while only."""

    access_key_id: str
    secret_access_key: str
    session_token: NotRequired[str | None]


CredentialSource = AwsCredentials | Callable[[], AwsCredentials]
"""Keys, or a function that gives those that are valid now. It is called for each request, on the request's thread."""


class Access:
    """Makes the client when it is first needed: that takes a tenth of a second, and may ask the network for credentials.

    Args:
        boto_session: The session to use: its credentials, region and profile.
        boto_client_config: Configuration of the client; what it does not set keeps our values.
        region_name: The region; else `AWS_REGION`, `AWS_DEFAULT_REGION`, the profile's, or `us-west-2`.
        endpoint_url: Another address than the region's.
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
        boto_client_config: Config | None,
        region_name: str | None,
        endpoint_url: str | None,
        credentials: CredentialSource | None,
        environ: Mapping[str, str] | None,
    ) -> None:
        if find_spec("boto3") is None:  # importing it takes a fifth of a second: that is left to the first request
            raise MissingExtraError("boto3", "bedrock")
        if boto_session is not None and region_name is not None:
            raise InvalidInputError("give region_name or boto_session, not both: a session has a region of its own")
        if boto_session is not None and (credentials is not None or environ is not None):
            raise InvalidInputError(
                "give boto_session, or credentials or environ: a session has credentials of its own"
            )
        self._session = boto_session
        self._config = boto_client_config
        self._region = region_name
        self._endpoint_url = endpoint_url
        self._credentials = credentials
        self._environ = environ
        self._lock = threading.Lock()
        self._client: Any = None
        self._pid = 0

    @property
    def region(self) -> str:
        """The region, as far as it is known without asking a profile."""
        if self._client is not None:
            return str(self._client.meta.region_name)
        return self._region or self._named_region() or DEFAULT_REGION

    @property
    def endpoint(self) -> str:
        """The address that is asked."""
        if self._client is not None:
            return str(self._client.meta.endpoint_url)
        return self._endpoint_url or f"https://bedrock-runtime.{self.region}.amazonaws.com"

    def client(self) -> Any:
        """The client, made once in each process: its connections cannot be shared. Blocks; call it on a thread of its own."""
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                self._client, self._pid = self._make(), os.getpid()
            return self._client

    def _named_region(self) -> str | None:
        variables = os.environ if self._environ is None else self._environ
        return variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION")

    def _make(self) -> Any:
        import boto3
        from botocore.config import Config

        config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            max_pool_connections=_CONNECTIONS,
            # One attempt: botocore would sleep between several, unseen by the clock and deaf to cancellation.
            retries={"total_max_attempts": 1, "mode": "standard"},
            user_agent_extra="antiphon",
        )
        if self._config is not None:
            config = config.merge(self._config)
        session, region = self._session, self._region
        if session is None and (self._credentials is not None or self._environ is not None):
            session = boto3.Session(botocore_session=self._asking_only_us())
            # A bearer token in the process's environment is not what was asked for.
            config = config.merge(Config(signature_version="v4"))
        if session is None:
            session = boto3.Session()
        if self._session is None:
            region = region or self._named_region()
        make: Any = session.client
        client = make(
            "bedrock-runtime",
            region_name=region or session.region_name or DEFAULT_REGION,
            endpoint_url=self._endpoint_url,
            config=config,
        )
        hold_connections(client)
        hush_secrets()
        return client

    def _asking_only_us(self) -> Any:
        """A session that asks us for credentials, at each request, and nobody else."""
        from botocore.credentials import CredentialProvider, Credentials
        from botocore.session import Session

        current = self._current

        class Ours(Credentials):
            def get_frozen_credentials(self) -> Any:
                found = current()
                if found is None:
                    raise ModelCredentialsError("the source of AWS credentials has none any more: mend `environ`")
                keys = found["access_key_id"], found["secret_access_key"], found.get("session_token") or None
                return Credentials(*keys).get_frozen_credentials()

        class Source(CredentialProvider):
            METHOD = "antiphon"

            def load(self) -> Any:
                found = current()
                return None if found is None else Ours(found["access_key_id"], found["secret_access_key"])

        session: Any = Session()
        session.get_component("credential_provider").providers = [Source()]
        return session

    def _current(self) -> AwsCredentials | None:
        source = self._credentials
        if callable(source):
            try:
                return source()
            except ModelCredentialsError:
                raise
            except Exception as error:  # the user's own function: whatever it raises, there are no keys
                raise ModelCredentialsError(f"credentials() gave no keys: {type(error).__name__}: {error}") from error
        if source is not None:
            return source
        variables = self._environ or {}
        key, secret = variables.get("AWS_ACCESS_KEY_ID"), variables.get("AWS_SECRET_ACCESS_KEY")
        if not key or not secret:
            return None
        return {
            "access_key_id": key,
            "secret_access_key": secret,
            "session_token": variables.get("AWS_SESSION_TOKEN"),
        }
