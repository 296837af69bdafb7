"""OpenAI's Realtime API as a live model."""

from __future__ import annotations

import inspect
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from typing import Any
from urllib.parse import urlencode

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import Messages, ToolSpec
from antiphon.errors import InvalidInputError, ModelCredentialsError
from antiphon.models.bidi import AudioConfig, ConnectionConfig
from antiphon.models.live import WiredModel
from antiphon.models.openai.realtime_codec import RealtimeCodec
from antiphon.models.openai.realtime_errors import Explainer
from antiphon.models.openai.realtime_history import replay
from antiphon.models.openai.realtime_session import LONGEST_SESSION_S, Settings, default_connection, settings
from antiphon.models.openai.realtime_sound import SoundFormat
from antiphon.transports.websocket import WebSocket, require

BASE_URL = "wss://api.openai.com/v1"
Key = str | Callable[[], str | Awaitable[str]]

_CONFIGURABLE = {"model_id", "transcription_model_id", "voice", "timeout_s", "audio", "params", "connection"}
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


class OpenAIRealtimeModel(WiredModel[RealtimeCodec]):
    """Talks over OpenAI's Realtime API, or a server that speaks it.

    The provider says when the user begins and ceases to speak, and answers speech by itself. What is typed, and what tools
    come to, is answered as soon as no other response is under way; results wait for the other tools that run, for two
    seconds at most. The history is replayed to each new connection as text: the newest 64,000 characters of it.

    Args:
        model_id: For instance `gpt-realtime-2`.
        transcription_model_id: Writes down what the user says, for instance `gpt-transcribe`. None: nobody does, and the
            history says `[inaudible]` in the user's place.
        voice: The provider's name of a voice.
        api_key: The key, or a function that gives one for each connection (short-lived ones, for instance); it may be
            async. None: `OPENAI_API_KEY`.
        organization: None: `OPENAI_ORG_ID` (or `OPENAI_ORGANIZATION`), if that is set.
        project: None: `OPENAI_PROJECT_ID` (or `OPENAI_PROJECT`), if that is set.
        timeout_s: How long a connection may last, 3000 seconds at most: the provider ends one after an hour, without a
            warning.
        audio: Formats of `input` and `output`: `sample_rate` is the application's, in Hz, and what travels is converted;
            `format` is what travels: `pcm` (16-bit, 24 kHz), or the telephone's `pcmu` or `pcma` (8 kHz).
        params: Merged into the provider's `session`: `{"audio": {"input": {"noise_reduction": ...}}}`, `reasoning`,
            `tools` beside the agent's, and so on.
        connection: `restart_after_s` (default: `timeout_s` - 300), `auto_restart` (default True).
        base_url: Where the API is, with its version. None: `OPENAI_BASE_URL`, else OpenAI. `http:` is taken for `ws:`.
        tls: Whom `wss:` trusts. None: whom the system trusts.
        environ: Instead of the process's environment variables.
        clock: Measures the connection's age, and the pauses before a response that failed is asked for again.

    Raises:
        MissingExtraError: If the extra `openai` is not installed.
        ModelCredentialsError: If there is no key.
        InvalidInputError: If a value cannot be used.
        AudioFormatError: If a format of sound cannot be had.
    """

    def __init__(
        self,
        model_id: str,
        *,
        transcription_model_id: str | None,
        voice: str = "alloy",
        api_key: Key | None = None,
        organization: str | None = None,
        project: str | None = None,
        timeout_s: float = LONGEST_SESSION_S,
        audio: AudioConfig | None = None,
        params: Mapping[str, Any] | None = None,
        connection: ConnectionConfig | None = None,
        base_url: str | None = None,
        tls: ssl.SSLContext | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        require("openai")
        super().__init__(clock=clock)
        self._config: dict[str, Any] = {
            "model_id": model_id,
            "transcription_model_id": transcription_model_id,
            "voice": voice,
            "timeout_s": timeout_s,
            "audio": {} if audio is None else audio,
            "params": {} if params is None else params,
            "connection": {} if connection is None else connection,
        }
        self._settings = settings(self._config)
        self._config = deepcopy(self._config)
        self._access = _Access(
            os.environ if environ is None else environ,
            api_key=api_key,
            organization=organization,
            project=project,
            base_url=base_url,
            tls=tls,
        )
        self._codec: RealtimeCodec | None = None

    def get_config(self) -> dict[str, Any]:
        config = deepcopy(self._config)
        config["connection"] = {**default_connection(config["timeout_s"]), **config["connection"]}
        return config

    def update_config(self, **config: Any) -> None:
        """Change what the constructor took, but for credentials and addresses, from the next connection on.

        Raises:
            InvalidInputError: If a name is unknown or a value cannot be used; nothing is changed then.
        """
        if unknown := sorted(config.keys() - _CONFIGURABLE):
            raise InvalidInputError(f"{unknown[0]!r} cannot be configured: known are {sorted(_CONFIGURABLE)!r}")
        changed = {**self._config, **deepcopy(config)}
        self._settings = settings(changed)
        self._config = changed

    def get_audio_config(self) -> AudioConfig:
        """What the microphone is to give and the loudspeaker is to take: 16-bit mono PCM."""

        def pcm(form: SoundFormat) -> Any:
            return {"sample_rate": form.rate, "channels": 1, "format": "pcm"}

        return {"input": pcm(self._settings.hears), "output": pcm(self._settings.speaks)}

    @property
    def counts(self) -> dict[str, int]:
        """What this connection saw that nothing depends on: events of unknown types, and errors that were mere races."""
        return dict(self._codec.counts) if self._codec is not None else {}

    async def restart(
        self,
        system_prompt: str | None = None,
        tools: list[ToolSpec] | None = None,
        messages: Messages | None = None,
        **restart_config: Any,
    ) -> None:
        """Replace the connection in the middle of a talk.

        The new session is told the history, and that the talk goes on. `owed` is what the old one said of an answer that
        it had not given, or not to its end: the new one gives it.
        """
        await super().restart(
            system_prompt=system_prompt, tools=tools, messages=messages, **{"continued": True, **restart_config}
        )

    def _make_codec(
        self, system_prompt: str | None, tools: list[ToolSpec], messages: Messages, restart_config: dict[str, Any]
    ) -> RealtimeCodec:
        chosen: Settings = self._settings
        self._codec = codec = RealtimeCodec(
            session=chosen.told(system_prompt, tools),
            hears=chosen.hears,
            speaks=chosen.speaks,
            history=replay(messages),
            explainer=Explainer(self._config["model_id"], self._access.base_url),
            limit_s=self._config["timeout_s"],
            continued=bool(restart_config.get("continued")),
            owed=restart_config.get("owed", ""),
        )
        return codec

    async def _dial(self, codec: RealtimeCodec) -> WebSocket:
        headers = await self._access.headers()
        codec.explainer.secret = headers["Authorization"].removeprefix("Bearer ")
        return await WebSocket.open(self._access.url(self._config["model_id"]), headers=headers, tls=self._access.tls)

    async def truncate(self, response_id: str, played_ms: float) -> None:
        """The listener heard only the first `played_ms` of this response: the provider forgets the rest.

        What was heard whole stays; what was heard in part is cut there; what was not heard is deleted.

        Raises:
            ConnectionEndedError: If there is no connection.
        """
        link, _ = self._connected()
        link.codec.truncate(response_id, played_ms)
        await self._told(link)


class _Access:
    """Where the API is, and who asks."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        api_key: Key | None,
        organization: str | None,
        project: str | None,
        base_url: str | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        key = api_key if api_key is not None else environ.get("OPENAI_API_KEY")
        if not key:
            raise ModelCredentialsError("there is no key: give api_key, or set OPENAI_API_KEY")
        self._key: Key = key
        self._organization = organization or environ.get("OPENAI_ORG_ID") or environ.get("OPENAI_ORGANIZATION")
        self._project = project or environ.get("OPENAI_PROJECT_ID") or environ.get("OPENAI_PROJECT")
        self.base_url = _websocket_url(base_url or environ.get("OPENAI_BASE_URL") or BASE_URL)
        self.tls = tls

    def url(self, model_id: str) -> str:
        return f"{self.base_url}/realtime?{urlencode({'model': model_id})}"

    async def headers(self) -> dict[str, str]:
        """What the handshake says of who asks.

        Raises:
            ModelCredentialsError: If the function gives no key.
        """
        key: Any = self._key if isinstance(self._key, str) else self._key()
        if inspect.isawaitable(key):
            key = await key
        if not isinstance(key, str) or not key or not key.isascii() or any(char.isspace() for char in key):
            raise ModelCredentialsError("api_key is no key: it is empty, or not plain text without blanks")
        headers = {"Authorization": f"Bearer {key}"}
        if self._organization:
            headers["OpenAI-Organization"] = self._organization
        if self._project:
            headers["OpenAI-Project"] = self._project
        return headers


def _websocket_url(url: str) -> str:
    scheme, found, rest = url.partition("://")
    if not found or scheme.lower() not in _SCHEMES or not rest or "?" in rest or "#" in rest or "@" in rest:
        raise InvalidInputError(
            f"base_url={url!r} is not an address such as {BASE_URL!r}, without user, query and fragment"
        )
    return f"{_SCHEMES[scheme.lower()]}://{rest.rstrip('/')}"
