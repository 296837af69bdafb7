"""Where Gemini Live is reached, and by which right."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from antiphon.errors import InvalidInputError, ModelCredentialsError

Secret = str | Callable[[], str | Awaitable[str]]
"""A secret, or a function (plain or async) that gives a fresh one for each connection."""

HOST = "https://generativelanguage.googleapis.com"
KEY_NAMES = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
EPHEMERAL = "auth_tokens/"
"""What the names of ephemeral tokens begin with."""
_PLACE = re.compile(r"[a-z0-9][a-z0-9-]*")


class LiveAccess:
    """One service, with one kind of credentials. Keys are kept out of `repr`, errors and configurations.

    Args:
        api_key: A key of the Gemini API, or an ephemeral token (`auth_tokens/...`).
        access_token: A bearer token of Google Cloud, for Vertex AI.
        project: The project, for Vertex AI.
        location: The region, for Vertex AI; `global` is one.
        base_url: Another service that speaks the protocol: `http:`, `https:`, `ws:` or `wss:`.
        api_version: Of the protocol; left out, `v1beta` (`v1alpha` for ephemeral tokens, `v1beta1` on Vertex AI).
        headers: Sent with the handshake, too.
        environ: Where `GOOGLE_API_KEY` and `GEMINI_API_KEY` are looked up; left out, the process's environment.
    """

    __slots__ = (
        "_access_token",
        "_api_key",
        "_api_version",
        "_base_url",
        "_environ",
        "_headers",
        "_used",
        "location",
        "project",
    )

    def __init__(
        self,
        *,
        api_key: Secret | None = None,
        access_token: Secret | None = None,
        project: str | None = None,
        location: str | None = None,
        base_url: str | None = None,
        api_version: str | None = None,
        headers: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        if (project is None) != (location is None):
            raise InvalidInputError(f"Vertex AI needs both: project={project!r}, location={location!r}")
        for name, value in (("project", project), ("location", location)):
            if value is not None and not _PLACE.fullmatch(value):
                raise InvalidInputError(f"{name}={value!r} is none: use lower-case letters, digits and hyphens")
        if project is not None and access_token is None:
            raise InvalidInputError(
                "Vertex AI needs access_token=...: a bearer token, or a function that gives one, such as "
                "google.auth's credentials.refresh(...) and credentials.token"
            )
        if project is None and access_token is not None:
            raise InvalidInputError("access_token belongs to Vertex AI: give project and location, too, or an api_key")
        if base_url is not None and urlsplit(base_url).scheme not in {"http", "https", "ws", "wss"}:
            raise InvalidInputError(f"base_url={base_url!r} is no http:, https:, ws: or wss: address")
        self.project = project
        self.location = location
        self._api_key = api_key
        self._access_token = access_token
        self._base_url = base_url
        self._api_version = api_version
        self._headers = dict(headers or {})
        self._environ = environ
        self._used = ""  # the secret of the latest connection, so that it can be taken out of what the service says

    def __repr__(self) -> str:
        place = f"project={self.project!r}, location={self.location!r}" if self.project else "api_key=..."
        return f"LiveAccess({place}, base_url={self._base_url!r})"

    def model_name(self, model_id: str) -> str:
        """The resource name of a model."""
        if self.project is None:
            return model_id if "/" in model_id else f"models/{model_id}"
        if model_id.startswith("projects/"):
            return model_id
        path = model_id if "/" in model_id else f"publishers/google/models/{model_id}"
        return f"projects/{self.project}/locations/{self.location}/{path}"

    async def address(self) -> tuple[str, dict[str, str]]:
        """Where to dial now, and with which headers.

        Raises:
            ModelCredentialsError: If there is no key.
        """
        if self.project is not None:
            self._used = await _fresh(self._access_token, "access_token")
            host = "aiplatform" if self.location == "global" else f"{self.location}-aiplatform"
            base = self._base_url or f"https://{host}.googleapis.com"
            version = self._api_version or "v1beta1"
            method = f"google.cloud.aiplatform.{version}.LlmBidiService/BidiGenerateContent"
            return _url(base, method), {**self._headers, "authorization": f"Bearer {self._used}"}
        self._used = key = await _fresh(self._key(), "api_key")
        service = "google.ai.generativelanguage.{}.GenerativeService."
        if key.startswith(EPHEMERAL):
            method = service.format(self._api_version or "v1alpha") + "BidiGenerateContentConstrained"
            headers = {"authorization": f"Token {key}"}
        else:
            method = service.format(self._api_version or "v1beta") + "BidiGenerateContent"
            headers = {"x-goog-api-key": key}
        return _url(self._base_url or HOST, method), {**self._headers, **headers}

    def hide(self, words: str) -> str:
        """`words` without the secret."""
        return words.replace(self._used, "[secret]") if self._used else words

    def _key(self) -> Secret | None:
        if self._api_key is not None:
            return self._api_key
        environ: Mapping[str, str] = os.environ if self._environ is None else self._environ
        return next((environ[name] for name in KEY_NAMES if environ.get(name)), None)


async def _fresh(secret: Secret | None, name: str) -> str:
    value: Any = secret
    if callable(secret):
        value = secret()
        if inspect.isawaitable(value):
            value = await value
    if not isinstance(value, str) or not value.strip():
        raise ModelCredentialsError(
            f"there is no key for Gemini Live: give {name}=..., or set {' or '.join(KEY_NAMES)} in the environment"
        )
    key = value.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ModelCredentialsError(f"{name} has characters that no key has: look for a line break or a space in it")
    return key


def _url(base: str, method: str) -> str:
    scheme, _, rest = base.rstrip("/").partition("://")
    return f"{ {'http': 'ws', 'https': 'wss'}.get(scheme, scheme) }://{rest}/ws/{method}"
