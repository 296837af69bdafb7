"""A certificate authority that lives as long as a test, for loopback servers that must speak TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme


class LoopbackAuthority:
    """Makes a server's certificate for localhost and 127.0.0.1, and says whom a client must trust.

    Needs the package `trustme`.
    """

    def __init__(self) -> None:
        self._authority = trustme.CA()
        self._certificate = self._authority.issue_cert("localhost", "127.0.0.1")

    def server_context(self, *protocols: str) -> ssl.SSLContext:
        """A server's context; `protocols` are offered by ALPN, for instance `h2`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._certificate.configure_cert(context)  # pyright: ignore[reportUnknownMemberType]
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context

    def client_context(self) -> ssl.SSLContext:
        """A client's context that trusts this authority and nobody else."""
        context = ssl.create_default_context()
        self._authority.configure_trust(context)  # pyright: ignore[reportUnknownMemberType]
        return context

    def write_ca(self, path: Path) -> Path:
        """Write the authority's certificate (PEM), for clients that take a file (`SSL_CERT_FILE`, `AWS_CA_BUNDLE`)."""
        path.write_bytes(self._authority.cert_pem.bytes())
        return path
