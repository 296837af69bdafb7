"""Amazon Nova Sonic: speech to speech over one HTTP/2 request to Amazon Bedrock."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from antiphon.bounded import within
from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import Messages, ToolSpec
from antiphon.errors import AudioFormatError, InvalidInputError, ModelError, TransportError
from antiphon.events import BidiConnectionStartEvent
from antiphon.ids import new_uuid7
from antiphon.models.bedrock.credentials import KeyRing, KeySource
from antiphon.models.bedrock.nova_codec import NovaSonicCodec
from antiphon.models.bedrock.nova_opening import (
    DEFAULT_PROMPT,
    RATES,
    SENSITIVITIES,
    Opening,
    Sensitivity,
    checked_inference,
    replay,
    unanswered,
)
from antiphon.models.bedrock.nova_wire import SignedStream
from antiphon.models.bidi import AudioConfig, ConnectionConfig
from antiphon.models.live import Link, WiredModel
from antiphon.transports.base import Transport
from antiphon.transports.http2 import HTTP2Stream, require
from antiphon.transports.sigv4 import Credentials, EventSigner, Scope, signed_headers

if TYPE_CHECKING:
    import boto3

RESTART_AFTER_S = 420.0
"""The service ends a session after about eight minutes."""
ACCEPT_S = 3.0
"""How long `start` waits for the service to say that it takes the session; then it goes on, and `receive` tells."""
_BEFORE_EXPIRY_S = 180.0
_ENDPOINT = "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"
_SETTINGS = ("model_id", "voice", "audio", "params", "turn_detection", "connection")


class BedrockNovaSonicModel(WiredModel[NovaSonicCodec]):
    """A live model on Amazon Bedrock that hears and speaks.

    It takes sound, and typed text; no images. It says nothing of its own accord. A connection ends after about eight
    minutes: the agent restarts it before that, at a pause, and tells the new one what was said so far, in words
    (at most 200 kB, the newest). Answers that the user speaks over enter the history as far as the model says that
    they were said.

    Args:
        model_id: The model, or the ARN of a profile.
        boto_session: The session to use: its credentials, region and profile. Instead of `region`.
        region: The region; else `AWS_REGION`, `AWS_DEFAULT_REGION`, or `us-east-1`.
        credentials: Keys (`access_key_id`, `secret_access_key`, and for short-lived ones `session_token` and `expires_at`), or
            a function, which may be `async`, that gives those that are valid now: it is asked for each connection. Left
            out, botocore looks where it always does.
        environ: The environment to read instead of the process's own, keys included.
        endpoint_url: Another address than the region's; else `AWS_ENDPOINT_URL_BEDROCK_RUNTIME`.
        tls: Whom to trust.
        voice: The voice's id.
        audio: `{"input": {"sample_rate": ...}, "output": {"sample_rate": ...}}`, 8000, 16000 or 24000 Hz. Left out, it
            hears 16000 and speaks 24000.
        params: `max_tokens`, `top_p`, `temperature`.
        turn_detection: How soon a pause ends the user's turn: `HIGH` is soonest, `LOW` latest; None: as the service has it.
        connection: `restart_after_s` (420; and three minutes before short-lived keys end, if that is known), `auto_restart`.
        silence_s: The service wants sound all the time: when nobody has sent any for so long, silence is sent; None: never.
        clock: Measures all waiting, and dates signatures.
        start_timeout_s: How long opening a connection may take, in seconds.

    Raises:
        MissingExtraError: If boto3 or h2 is not installed.
        InvalidInputError: If a setting cannot be, or arguments exclude one another.
    """

    def __init__(
        self,
        model_id: str = "amazon.nova-2-sonic-v1:0",
        *,
        boto_session: boto3.Session | None = None,
        region: str | None = None,
        credentials: KeySource | None = None,
        environ: Mapping[str, str] | None = None,
        endpoint_url: str | None = None,
        tls: ssl.SSLContext | None = None,
        voice: str = "matthew",
        audio: AudioConfig | None = None,
        params: Mapping[str, Any] | None = None,
        turn_detection: Sensitivity | None = None,
        connection: ConnectionConfig | None = None,
        silence_s: float | None = 0.2,
        clock: Clock = SYSTEM_CLOCK,
        start_timeout_s: float = 20.0,
    ) -> None:
        super().__init__(clock=clock, start_timeout_s=start_timeout_s)
        require("bedrock")
        self._keys = KeyRing(boto_session=boto_session, region=region, credentials=credentials, environ=environ)
        variables = os.environ if environ is None else environ
        self._endpoint_url = endpoint_url or variables.get(_ENDPOINT)
        self._tls = tls
        if silence_s is not None and not 0.02 <= silence_s <= 10:
            raise InvalidInputError(f"silence_s={silence_s!r} is not between 0.02 and 10 seconds")
        self._silence_s = silence_s
        self._expires_in_s: float | None = None
        self._config: dict[str, Any] = {
            "model_id": model_id,
            "voice": voice,
            "audio": audio or {},
            "params": dict(params or {}),
            "turn_detection": turn_detection,
            "connection": connection or {},
        }
        self._checked()

    @property
    def region(self) -> str:
        """The region, as far as it is known without asking a profile."""
        return self._keys.region

    def get_config(self) -> dict[str, Any]:
        return deepcopy({**self._config, "region": self.region})

    def update_config(self, **config: Any) -> None:
        """Change `model_id`, `voice`, `audio`, `params`, `turn_detection` or `connection` from the next connection on.

        Raises:
            InvalidInputError: If a name is another, or a value cannot be; nothing is changed then.
        """
        if unknown := sorted(set(config) - set(_SETTINGS)):
            raise InvalidInputError(f"config={unknown!r} is unknown: Nova Sonic has {', '.join(_SETTINGS)}")
        before = self._config
        self._config = {**before, **deepcopy(config)}
        try:
            self._checked()
        except Exception:
            self._config = before
            raise

    def get_connection_config(self) -> ConnectionConfig:
        """With defaults; a connection whose keys end is restarted before that."""
        config: ConnectionConfig = {"restart_after_s": RESTART_AFTER_S, "auto_restart": True}
        config |= cast("ConnectionConfig", self._config["connection"])
        if self._expires_in_s is not None and config["restart_after_s"] > 0:
            left = max(self._expires_in_s - _BEFORE_EXPIRY_S, self._expires_in_s / 2)
            config["restart_after_s"] = min(config["restart_after_s"], max(1.0, left))
        return config

    def get_audio_config(self) -> AudioConfig:
        """16-bit mono PCM both ways."""
        opening = self._opening()
        return {
            "input": {"sample_rate": opening.input_rate, "channels": 1, "format": "pcm"},
            "output": {"sample_rate": opening.output_rate, "channels": 1, "format": "pcm", "voice": opening.voice},
        }

    def _checked(self) -> None:
        """Refuse settings that cannot be.

        Raises:
            InvalidInputError: Naming the setting.
        """
        config = self._config
        for name in ("model_id", "voice"):
            if not isinstance(config[name], str) or not config[name].strip():
                raise InvalidInputError(f"{name}={config[name]!r} must be a non-empty string")
        if config["turn_detection"] not in {None, *SENSITIVITIES}:
            raise InvalidInputError(
                f"turn_detection={config['turn_detection']!r} is none of {', '.join(SENSITIVITIES)}"
            )
        for direction, stream in config["audio"].items():
            if direction not in {"input", "output"}:
                raise InvalidInputError(f"audio has 'input' and 'output', and no {direction!r}")
            if stream.get("sample_rate", RATES[0]) not in RATES:
                raise AudioFormatError(
                    f"audio: {direction} sample_rate={stream['sample_rate']!r}: Nova Sonic has 8000, 16000 and 24000 Hz"
                )
            if stream.get("channels", 1) != 1 or stream.get("format", "pcm") != "pcm":
                raise AudioFormatError(f"audio: {direction}={stream!r}: Nova Sonic has 16-bit PCM of one channel")
        checked_inference(config["params"])

    def _opening(self) -> Opening:
        config = self._config
        audio: dict[str, Any] = config["audio"]
        return Opening(
            model_id=config["model_id"],
            voice=audio.get("output", {}).get("voice", config["voice"]),
            input_rate=audio.get("input", {}).get("sample_rate", 16000),
            output_rate=audio.get("output", {}).get("sample_rate", 24000),
            inference=checked_inference(config["params"]),
            sensitivity=config["turn_detection"],
        )

    def _make_codec(
        self, system_prompt: str | None, tools: list[ToolSpec], messages: Messages, restart_config: dict[str, Any]
    ) -> NovaSonicCodec:
        base = self._opening()
        history, asks = replay(messages), ""
        if not base.is_first_generation:  # that one can be asked nothing in words
            history, asks = unanswered(history, restart_config.get("owed", ""))
        opening = Opening(
            model_id=base.model_id,
            voice=base.voice,
            input_rate=base.input_rate,
            output_rate=base.output_rate,
            inference=base.inference,
            sensitivity=base.sensitivity,
            system_prompt=system_prompt if system_prompt and system_prompt.strip() else DEFAULT_PROMPT,
            tools=tuple(tools),
            history=history,
            asks=asks,
        )
        return NovaSonicCodec(opening, new_uuid7(), region=self.region, silence_s=self._silence_s)

    async def _dial(self, codec: NovaSonicCodec) -> Transport:
        credentials = await self._keys.current()
        self._note_expiry(credentials)
        base = (self._endpoint_url or f"https://bedrock-runtime.{self.region}.amazonaws.com").rstrip("/")
        url = f"{base}/model/{quote(self.model_id, safe='')}/invoke-with-bidirectional-stream"
        scope = Scope(region=self.region, service="bedrock")
        headers, signature = signed_headers(
            credentials,
            scope,
            self._clock.utc(),
            method="POST",
            url=url,
            headers={
                "content-type": "application/vnd.amazon.eventstream",
                "accept": "application/vnd.amazon.eventstream",
            },
        )
        stream = await HTTP2Stream.open(
            url, headers=list(headers.items()), tls=self._tls, timeout_s=self._start_timeout_s
        )
        return SignedStream(stream, EventSigner(credentials, scope, signature), self._clock)

    async def _connect(self, link: Link[NovaSonicCodec]) -> None:
        try:
            await super()._connect(link)
        except ModelError as error:
            # A request that is refused may break off while its body is still being sent: the refusal says why.
            if refusal := await self._refusal(link):
                raise refusal from error
            raise
        if refusal := await self._refusal(link):
            raise refusal
        request_id = link.wire.request_id if isinstance(link.wire, SignedStream) else ""
        link.early.append(BidiConnectionStartEvent(connection_id=request_id, model=self.model_id))

    async def _refusal(self, link: Link[NovaSonicCodec]) -> Exception | None:
        """Why the service does not take the session; None: it does, or has not said yet, but is there."""
        if not isinstance(link.wire, SignedStream):
            return None
        try:
            try:
                await within(self._clock, ACCEPT_S, link.wire.accepted())
            except TimeoutError:
                await link.wire.ping()
        except TransportError as error:
            return link.codec.explain(error)
        return None

    def _note_expiry(self, credentials: Credentials) -> None:
        ends = credentials.expires_at
        self._expires_in_s = None if ends is None else (ends - self._clock.utc()).total_seconds()
