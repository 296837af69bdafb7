"""Gemini Live as a live model."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any, Literal, cast

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import Messages, ToolSpec
from antiphon.errors import AudioFormatError, InvalidInputError, ModelError, TransportError
from antiphon.models.bidi import AudioConfig, ConnectionConfig
from antiphon.models.google.live_access import LiveAccess, Secret
from antiphon.models.google.live_codec import GeminiLiveCodec
from antiphon.models.google.live_reading import OUTPUT_RATE
from antiphon.models.google.live_setup import HISTORY_CHARS, LiveSettings, Scheduling, wire_params
from antiphon.models.live import WiredModel
from antiphon.transports.base import Transport
from antiphon.transports.websocket import WebSocket, require

Resume = Literal["auto", "handle", "replay"]

RESTART_AFTER_S = 540.0
"""A connection lasts ten minutes; the service gives notice a minute ahead."""
_CLIENT_ARGS = frozenset({"api_key", "http_options", "location", "project"})

_log = logging.getLogger(__name__)


class GoogleGeminiLiveModel(WiredModel[GeminiLiveCodec]):
    """Gemini Live, over its own protocol on a websocket. Needs the extra `google`.

    A connection is replaced before its ten minutes are over, at a moment when nobody speaks. The service can resume a session
    where a connection ended, from a handle: with all it heard and said, which cannot be edited. A new session is told the
    history instead, which says what the listener heard, in text. `resume` chooses:

    - `"auto"` (the default): by handle while that is all that was said and no answer was cut short; else a new session.
    - `"handle"`: by handle whenever there is one. What was said after the handle was made is lost to the model (not to the
      history), and the model believes that more of a cut answer was heard than was.
    - `"replay"`: always a new session.

    A session whose resumption is refused is replaced by a new one within the same restart.

    Args:
        model_id: Such as `gemini-3.8-live`.
        voice: A prebuilt voice, such as `Puck`; None: the service's choice.
        audio: Formats: `{"input": {"sample_rate": ...}, "output": {"sample_rate": ...}}`. Sound goes in at any rate (16 kHz is
            the model's own) and comes out at 24 kHz; at another `output` rate it is resampled here. 16-bit PCM, mono.
        params: More of the setup, by its names in snake or camel case: `temperature`, `top_p`, `max_output_tokens`,
            `thinking_config`, `realtime_input_config`, `proactivity`, `safety_settings`, `tools` (such as
            `[{"google_search": {}}]`), ... None takes a default out: transcriptions both ways, and compression of the context,
            without which a session ends after 15 minutes.
        connection: `restart_after_s` (default 540) and `auto_restart` (default True).
        client_args: The same as `api_key`, `project`, `location` and, in `http_options`, `base_url`, `api_version` and
            `headers`, as the vendor's client takes them.
        api_key: A key or an ephemeral token, or a function (plain or async) that gives one for each connection; left out,
            `GOOGLE_API_KEY`, else `GEMINI_API_KEY`.
        access_token: For Vertex AI: a bearer token, or a function that gives one for each connection.
        project: For Vertex AI.
        location: For Vertex AI.
        base_url: Another endpoint, such as a loopback server.
        tls: Trusts whom the connection is to trust.
        environ: Instead of the process's environment.
        resume: See above.
        non_blocking: Names of tools that the model does not wait for; True: all.
        scheduling: When the model speaks of the result of such a tool: `INTERRUPT`, `WHEN_IDLE` or `SILENT`.
        history_chars: How much text of the history a new session is told; the newest is kept.
        start_timeout_s: How long opening a connection may take.
        clock: Measures all waiting.

    Raises:
        InvalidInputError: If an argument cannot be used.
        MissingExtraError: If the package `websockets` is not installed.
    """

    def __init__(
        self,
        model_id: str,
        *,
        voice: str | None = None,
        audio: AudioConfig | None = None,
        params: Mapping[str, Any] | None = None,
        connection: ConnectionConfig | None = None,
        client_args: Mapping[str, Any] | None = None,
        api_key: Secret | None = None,
        access_token: Secret | None = None,
        project: str | None = None,
        location: str | None = None,
        base_url: str | None = None,
        tls: ssl.SSLContext | None = None,
        environ: Mapping[str, str] | None = None,
        resume: Resume = "auto",
        non_blocking: bool | Collection[str] = False,
        scheduling: Scheduling | None = None,
        history_chars: int = HISTORY_CHARS,
        start_timeout_s: float = 20.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        require("google")
        super().__init__(clock=clock, start_timeout_s=start_timeout_s)
        given = _client_args(client_args)
        self._access = LiveAccess(
            api_key=api_key if api_key is not None else given.get("api_key"),
            access_token=access_token,
            project=project if project is not None else given.get("project"),
            location=location if location is not None else given.get("location"),
            base_url=base_url if base_url is not None else given.get("base_url"),
            api_version=given.get("api_version"),
            headers=given.get("headers"),
            environ=environ,
        )
        self._tls = tls
        self._config: dict[str, Any] = {}
        self._latest: GeminiLiveCodec | None = None  # of the connection that is open, or was last
        self._connections = 0
        self.update_config(
            model_id=model_id,
            voice=voice,
            audio=audio,
            params=params,
            connection=connection,
            resume=resume,
            non_blocking=non_blocking,
            scheduling=scheduling,
            history_chars=history_chars,
        )

    def __repr__(self) -> str:
        return f"GoogleGeminiLiveModel({self._config['model_id']!r})"

    # Configuration.

    def get_config(self) -> dict[str, Any]:
        return deepcopy(self._config)

    def update_config(self, **config: Any) -> None:
        """Change the configuration from the next connection on.

        Raises:
            InvalidInputError: If a name or value cannot be used; nothing is changed then.
        """
        known = {
            "model_id",
            "voice",
            "audio",
            "params",
            "connection",
            "resume",
            "non_blocking",
            "scheduling",
            "history_chars",
        }
        if unknown := set(config) - known:
            raise InvalidInputError(f"there is no {sorted(unknown)!r} to configure: use some of {sorted(known)}")
        wanted = {**self._config, **deepcopy(config)}
        for name in ("audio", "params", "connection"):
            if not isinstance(wanted[name] or {}, Mapping):
                raise InvalidInputError(f"{name}={wanted[name]!r} is not a dict")
            wanted[name] = dict(wanted[name] or {})
        wanted["connection"] = {"restart_after_s": RESTART_AFTER_S, "auto_restart": True, **wanted["connection"]}
        if not isinstance(wanted["model_id"], str) or not wanted["model_id"].strip():
            raise InvalidInputError(f"model_id={wanted['model_id']!r}: model_id must be a non-empty string")
        if wanted["resume"] not in {"auto", "handle", "replay"}:
            raise InvalidInputError(f"resume={wanted['resume']!r} is none of 'auto', 'handle' and 'replay'")
        if wanted["scheduling"] not in {None, "INTERRUPT", "WHEN_IDLE", "SILENT"}:
            raise InvalidInputError(
                f"scheduling={wanted['scheduling']!r} is none of 'INTERRUPT', 'WHEN_IDLE' and 'SILENT'"
            )
        self._settings(wanted)  # checks the rest
        self._config = wanted

    def get_audio_config(self) -> AudioConfig:
        """What `AudioDelta`s hold, and what `BidiAudioDeltaEvent`s will."""
        settings = self._settings(self._config)
        return {
            "input": {"sample_rate": settings.input_rate, "channels": 1, "format": "pcm"},
            "output": {"sample_rate": settings.output_rate, "channels": 1, "format": "pcm"},
        }

    @property
    def handle(self) -> str | None:
        """The newest handle of the session: `start(handle=...)` resumes it, from another process, too, for two hours or so.

        The session must not be connected any more, and what was said after the handle was made is lost to it.
        """
        return None if self._latest is None else self._latest.handle

    @property
    def unknown_messages(self) -> dict[str, int]:
        """What the service sent over the latest connection and is not understood here, and how often."""
        return {} if self._latest is None else dict(self._latest.unknown)

    def _settings(self, config: Mapping[str, Any]) -> LiveSettings:
        audio: AudioConfig = config["audio"]
        return LiveSettings(
            model=self._access.model_name(config["model_id"]),
            voice=config["voice"] or audio.get("output", {}).get("voice"),
            input_rate=_rate(audio, "input", 16000),
            output_rate=_rate(audio, "output", OUTPUT_RATE),
            params=wire_params(config["params"]),
            non_blocking=config["non_blocking"],
            scheduling=config["scheduling"],
            history_chars=config["history_chars"],
        )

    # The connection.

    def _make_codec(
        self, system_prompt: str | None, tools: list[ToolSpec], messages: Messages, restart_config: dict[str, Any]
    ) -> GeminiLiveCodec:
        self._connections += 1
        self._latest = GeminiLiveCodec(
            self._settings(self._config),
            system_prompt=system_prompt,
            tools=tools,
            messages=messages,
            handle=restart_config.get("handle"),
            cut=restart_config.get("cut", False),
            owed=restart_config.get("owed", ""),
            prefix=f"gemini-{self._connections}-",
            hidden=self._access.hide,
        )
        return self._latest

    async def _dial(self, codec: GeminiLiveCodec) -> Transport:
        url, headers = await self._access.address()
        hide = self._access.hide
        try:
            # The service takes up to half a minute to answer a ping: silence is no sign of death.
            return await WebSocket.open(
                url, headers=headers, tls=self._tls, timeout_s=self._start_timeout_s, ping_timeout_s=None
            )
        except TransportError as error:
            if hide(str(error)) == str(error):
                raise
            refused = TransportError(hide(str(error)), code=error.code, reason=hide(error.reason), opened=error.opened)
        raise refused  # out here, so that an error with a secret in it is not its context either

    async def restart(
        self,
        system_prompt: str | None = None,
        tools: list[ToolSpec] | None = None,
        messages: Messages | None = None,
        **restart_config: Any,
    ) -> None:
        """Replace the connection: resume the session by its handle, or tell a new one the `messages` (see `resume`).

        The old connection is closed first: the service resumes no session that is still connected.
        """
        latest, owed = self._latest, self._owed()
        handle = self._handle_to_resume(restart_config.pop("handle", None))
        if handle is not None:
            cut = latest is not None and latest.cut
            knows = latest is not None and latest.current and handle == latest.handle
            try:
                await self.start(
                    system_prompt=system_prompt,
                    tools=tools,
                    messages=messages,
                    handle=handle,
                    cut=cut,
                    owed="" if knows else owed,
                    **restart_config,
                )
            except ModelError as error:
                if self._latest is None or not self._latest.refused:
                    raise
                _log.info("the session was not resumed, a new one is told the history: %s", error)
            else:
                return
        await self.start(system_prompt=system_prompt, tools=tools, messages=messages, owed=owed, **restart_config)

    def _handle_to_resume(self, given: str | None) -> str | None:
        how, latest = self._config["resume"], self._latest
        if how == "replay" or latest is None:
            return given if how == "handle" else None
        if how == "handle":
            return given or latest.handle
        return latest.handle if latest.current and not latest.cut else None

    # What only this model takes.

    async def activity_start(self) -> None:
        """The user begins to speak: for sessions that do not detect it (`automaticActivityDetection.disabled`).

        Raises:
            InvalidInputError: If the session detects it itself.
        """
        link, _ = self._connected()
        link.codec.activity(begins=True)
        await self._told(link)

    async def activity_end(self) -> None:
        """The user has ended.

        Raises:
            InvalidInputError: If the session detects it itself.
        """
        link, _ = self._connected()
        link.codec.activity(begins=False)
        await self._told(link)

    async def audio_stream_end(self) -> None:
        """The microphone is switched off; sound may be sent again at any time.

        Raises:
            InvalidInputError: If the session does not detect speech itself.
        """
        link, _ = self._connected()
        link.codec.audio_stream_end()
        await self._told(link)


def _rate(audio: AudioConfig, way: Literal["input", "output"], usual: int) -> int:
    stream = audio.get(way, {})
    rate, channels, kind = stream.get("sample_rate", usual), stream.get("channels", 1), stream.get("format", "pcm")
    if kind != "pcm" or channels != 1:
        raise AudioFormatError(
            f"audio {way}: format={kind!r}, channels={channels!r} | Gemini Live speaks mono 'pcm' only"
        )
    if not isinstance(cast("object", rate), int) or not 8000 <= rate <= 48000:
        raise AudioFormatError(f"audio {way}: sample_rate={rate!r} | use a rate from 8000 to 48000 Hz")
    return rate


def _client_args(args: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of the vendor's client that mean something here."""
    if not args:
        return {}
    given = dict(args)
    if given.pop("vertexai", None) and not given.get("project"):
        raise InvalidInputError("client_args: vertexai needs project and location, and access_token=...")
    if unknown := set(given) - _CLIENT_ARGS:
        raise InvalidInputError(f"client_args has {sorted(unknown)!r}: use some of {sorted(_CLIENT_ARGS)}")
    options: Any = given.pop("http_options", None) or {}
    if not isinstance(options, Mapping):
        raise InvalidInputError("client_args: http_options must be a dict of base_url, api_version and headers")
    known = cast("Mapping[str, Any]", options)
    if unknown := set(known) - {"api_version", "base_url", "headers"}:
        raise InvalidInputError(
            f"client_args: http_options has {sorted(unknown)!r}: use base_url, api_version, headers"
        )
    return {**given, **known}
