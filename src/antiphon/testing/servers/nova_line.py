"""A connection of the Nova Sonic server: HTTP/2, the signatures of request and messages, and the framing of events."""

from __future__ import annotations

import asyncio
import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived, StreamEnded, StreamReset, WindowUpdated
from h2.exceptions import H2Error
from h2.settings import SettingCodes

from antiphon.clock import Clock
from antiphon.errors import TransportError
from antiphon.ids import new_uuid7
from antiphon.testing.servers.nova_rules import NovaSession, RefusedError
from antiphon.transports.eventstream import Decoder, Message, encode_message
from antiphon.transports.sigv4 import (
    DATE,
    EVENTS,
    SIGNATURE,
    Credentials,
    Scope,
    event_signature,
    request_signature,
)

_READ = 64 * 1024
_SKEW = timedelta(minutes=5)
_STREAM = 1
_PATH_END = "/invoke-with-bidirectional-stream"
_WRONG_SIGNATURE = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and "
    "signing method. Consult the service documentation for details."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer other than 200.

    Attributes:
        status: Of HTTP.
        kind: AWS's name for it.
        message: For people.
    """

    status: int
    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How the server treats the network.

    Attributes:
        window: Bytes that a client may send before it is told to go on; None: 64 KiB.
        piece: Send in DATA frames of so many bytes at most, whatever they cut; None: as large as may be.
        merge: Send so many messages together.
        delay_s: Wait before each message, on the server's clock.
    """

    window: int | None = None
    piece: int | None = None
    merge: int = 1
    delay_s: float = 0.0


class Line:
    """One connection with one request. What is played over it is the server's business.

    Attributes:
        session: What the client has sent.
        open: Whether anything can be sent.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        clock: Clock,
        manners: Manners,
        check: Callable[[Line, dict[str, str]], Refusal | None],
        note: Callable[[], None],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._clock = clock
        self._manners = manners
        self._check = check
        self._note = note
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._decoder = Decoder()
        self._verifier: Verifier | None = None
        self._room = asyncio.Event()
        self._merged: list[bytes] = []
        self._sending = asyncio.Lock()
        self.session = NovaSession()
        self.open = False

    async def serve(self) -> None:
        """Read until the connection ends."""
        self._h2.initiate_connection()
        if (window := self._manners.window) is not None:
            # Not in the greeting: until the client has seen it, it may send as much as everybody may.
            self._h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
        await self._flush()
        while data := await self._reader.read(_READ):
            for event in self._h2.receive_data(data):
                await self._on(event)
            await self._flush()
        self._gone()

    def _gone(self) -> None:
        self.open = False
        self._room.set()
        self._note()

    def trust(self, verifier: Verifier) -> None:
        """The request was signed well: hold its messages against it."""
        self._verifier = verifier

    async def _on(self, event: Event) -> None:
        match event:
            case RequestReceived():
                headers = {str(name): str(value) for name, value in event.headers}
                self.session.headers = headers
                refusal = self._check(self, headers)
                await (self._accept() if refusal is None else self.refuse(refusal))
            case DataReceived():
                # In small portions where the window is small: the client must manage with what it is given.
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if self.open:
                    await self._take(event.data)
            case WindowUpdated():
                self._room.set()
            case StreamEnded():
                await self._body_over()
            case StreamReset():
                self._gone()
            case _:
                pass

    async def _accept(self) -> None:
        self.open = True
        self._h2.send_headers(
            _STREAM,
            [
                (":status", "200"),
                ("content-type", "application/vnd.amazon.eventstream"),
                ("x-amzn-requestid", new_uuid7()),
            ],
        )
        await self._flush()
        self._note()

    async def refuse(self, refusal: Refusal) -> None:
        """Answer with a status that is none of success, and end."""
        body = json.dumps({"message": refusal.message}).encode()
        self._h2.send_headers(
            _STREAM,
            [
                (":status", str(refusal.status)),
                ("content-type", "application/json"),
                ("x-amzn-requestid", new_uuid7()),
                ("x-amzn-errortype", f"{refusal.kind}:http://internal.amazon.com/coral/"),
            ],
        )
        self._h2.send_data(_STREAM, body, end_stream=True)
        await self._flush()

    async def _take(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                await self._envelope(message)
        except TransportError as error:
            await self._complain("SerializationException", str(error), modelled=False)
        except RefusedError as error:
            await self._complain(error.kind, str(error), fatal=error.fatal)
        self._note()

    async def _envelope(self, message: Message) -> None:
        if self._verifier is None or not self.open:
            return
        if not self._verifier.holds(message):
            await self._complain("InvalidSignatureException", _WRONG_SIGNATURE, modelled=False)
            return
        if not message.payload:
            self.session.ended_well = self.session.stage == "over"
            return
        inner = Decoder()
        for wrapped in inner.feed(message.payload):
            try:
                self.session.take(_event(wrapped))
            except RefusedError as error:
                await self._complain(error.kind, str(error), fatal=error.fatal)
        inner.end()

    async def _complain(self, kind: str, message: str, *, modelled: bool = True, fatal: bool = True) -> None:
        self.session.complaints.append(f"{kind}: {message}")
        await self.fail(kind, message, modelled=modelled, fatal=fatal)

    async def _body_over(self) -> None:
        if not self.open:
            return
        if self.session.stage == "over":
            body = {"promptName": "", "sessionId": "", "completionId": "", "stopReason": "END_TURN"}
            await self.event("completionEnd", body)
        await self.end()

    # What goes out.

    async def event(self, name: str, body: dict[str, Any]) -> None:
        """Send an event."""
        inner = b64encode(json.dumps({"event": {name: body}}).encode()).decode()
        headers = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
        await self.message(encode_message(headers, json.dumps({"bytes": inner}).encode()))

    async def message(self, raw: bytes) -> None:
        """Send a message, or what is to pass for one."""
        if self._manners.delay_s:
            await self._clock.sleep(self._manners.delay_s)
        self._merged.append(raw)
        if len(self._merged) >= self._manners.merge:
            await self.send_merged()

    async def send_merged(self) -> None:
        """Send what was kept back to be sent together."""
        async with self._sending:
            data, self._merged = b"".join(self._merged), []
            await self._send(data)

    async def _send(self, data: bytes) -> None:
        while data and self.open:
            room = min(self._h2.local_flow_control_window(_STREAM), self._h2.max_outbound_frame_size, len(data))
            room = min(room, self._manners.piece or room)
            if room <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            self._h2.send_data(_STREAM, data[:room])
            data = data[room:]
            await self._flush()

    async def fail(self, kind: str, message: str, *, modelled: bool = True, fatal: bool = True) -> None:
        """Send an exception; it ends the stream if it is fatal."""
        if modelled:
            headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
            raw = encode_message(headers, json.dumps({"message": message}).encode())
        else:
            raw = encode_message({":error-code": kind, ":error-message": message, ":message-type": "error"})
        await self.message(raw)
        await self.send_merged()
        if fatal:
            await self.end()

    async def end(self) -> None:
        """End the answer in good order."""
        await self.send_merged()
        if self.open:
            self.open = False
            self._h2.end_stream(_STREAM)
            await self._flush()
            self._note()

    async def reset(self, code: str) -> None:
        """RST_STREAM with an error's name."""
        self.open = False
        self._h2.reset_stream(_STREAM, ErrorCodes[code])
        await self._flush()

    async def go_away(self) -> None:
        """GOAWAY that lets the open stream finish; h2 itself would end everything."""
        frame = (8).to_bytes(3, "big") + bytes([7, 0]) + bytes(4) + _STREAM.to_bytes(4, "big") + bytes(4)
        self._writer.write(frame)
        await self._writer.drain()

    def abort(self) -> None:
        """Let the connection die."""
        self.open = False
        self._writer.transport.abort()

    async def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._writer.write(data)
            await self._writer.drain()


PROTOCOL_ERRORS = (H2Error, OSError)
"""What a client that does not speak HTTP/2, or is gone, makes a line raise."""


def _event(message: Message) -> object:
    if message.text_header(":message-type") != "event" or message.text_header(":event-type") != "chunk":
        raise RefusedError("A message must have the headers :message-type=event and :event-type=chunk.")
    try:
        inner: Any = json.loads(b64decode(json.loads(message.payload)["bytes"], validate=True))
        return inner["event"]
    except (ValueError, KeyError, TypeError) as error:
        raise RefusedError("The payload is not JSON with base64 of an event.") from error


class Verifier:
    """Holds a chain of signatures against the secret."""

    def __init__(self, credentials: Credentials, scope: Scope, signature: str) -> None:
        self._secret = credentials.secret_access_key
        self._scope = scope
        self._before = signature

    def holds(self, message: Message) -> bool:
        """Whether a message is signed, and stands where it was signed to stand."""
        moment, signature = message.headers.get(DATE), message.headers.get(SIGNATURE)
        if not isinstance(moment, datetime) or not isinstance(signature, bytes) or len(message.headers) != 2:
            return False
        wanted = event_signature(self._secret, self._scope, moment, before=self._before, payload=message.payload)
        self._before = signature.hex()
        return hmac.compare_digest(wanted, signature)


def verify(
    headers: dict[str, str], credentials: Credentials, *, now: datetime, region: str, scheme: str
) -> tuple[Verifier | None, Refusal | None]:
    """Hold a request's signature against the secret: what to hold its messages against, or why it is refused."""
    authorization = headers.get("authorization", "")
    if not authorization.startswith("AWS4-HMAC-SHA256 "):
        return None, Refusal(
            status=403, kind="MissingAuthenticationTokenException", message="Missing Authentication Token"
        )
    parts: dict[str, str] = {}
    for part in authorization.partition(" ")[2].split(","):
        name, _, value = part.strip().partition("=")
        parts[name] = value
    access_key, _, scope_text = parts.get("Credential", "").partition("/")
    if access_key != credentials.access_key_id or headers.get("x-amz-security-token") != credentials.session_token:
        told = "The security token included in the request is invalid."
        return None, Refusal(status=403, kind="UnrecognizedClientException", message=told)
    try:
        moment = datetime.strptime(headers.get("x-amz-date", ""), "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None, Refusal(status=403, kind="IncompleteSignatureException", message="X-Amz-Date is missing.")
    if credentials.expires_at is not None and now >= credentials.expires_at:
        told = "The security token included in the request is expired"
        return None, Refusal(status=403, kind="ExpiredTokenException", message=told)
    if abs(now - moment) > _SKEW:
        told = f"Signature expired: {moment:%Y%m%dT%H%M%SZ} is not within 5 min. of {now:%Y%m%dT%H%M%SZ}"
        return None, Refusal(status=403, kind="InvalidSignatureException", message=told)
    scope = Scope(region=region, service="bedrock")
    names = parts.get("SignedHeaders", "").split(";")
    signed = {name: headers[":authority"] if name == "host" else headers.get(name, "") for name in names}
    payload_hash = headers.get("x-amz-content-sha256", "")
    wanted = request_signature(
        credentials.secret_access_key,
        scope,
        moment,
        method=headers[":method"],
        url=f"{scheme}://{headers[':authority']}{headers[':path']}",
        headers=signed,
        payload_hash=payload_hash,
    )
    good = scope_text == scope.on(moment) and "host" in names and "x-amz-date" in names
    if not good or payload_hash != EVENTS or not hmac.compare_digest(wanted, parts.get("Signature", "")):
        return None, Refusal(status=403, kind="InvalidSignatureException", message=_WRONG_SIGNATURE)
    return Verifier(credentials, scope, wanted), None


def model_of(path: str) -> str | None:
    """The model that a path names; None where it is another operation's."""
    path = path.partition("?")[0]
    if not path.startswith("/model/") or not path.endswith(_PATH_END):
        return None
    return unquote(path.removeprefix("/model/").removesuffix(_PATH_END))
