"""A way to PostgreSQL that breaks where a test wants it."""

import contextlib
import select
import socket
import threading


class CuttingProxy:
    """Passes bytes on between a loopback port and a server's unix socket. A context manager.

    Args:
        folder: Of the server's socket.

    Attributes:
        cut_at: Bytes of a client at which its connection is cut; None: never. Each is used once.
        delivers: Whether these bytes still reach the server, and are carried out; the answer is lost then.
        refuses: Whether new connections are refused.
        cuts: How many were cut.
    """

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/.s.PGSQL.5432"
        self.cut_at: bytes | None = None
        self.delivers = True
        self.refuses = False
        self.refuses_after_cut = False
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._ending = False

    @property
    def dsn(self) -> str:
        port = self._listening.getsockname()[1]
        return f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable&gssencmode=disable"

    def __enter__(self):
        self._start(self._accept)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ending = True
        with contextlib.suppress(OSError), socket.create_connection(self._listening.getsockname()):
            pass
        for thread in self._threads:
            thread.join(10)
        self._listening.close()

    def _start(self, work, *arguments) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._ending:
            client, _ = self._listening.accept()
            if self.refuses or self._ending:
                client.close()
                continue
            self._start(self._pass_on, client)

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._path)
            while not self._ending:
                ready, _, _ = select.select([client, server], [], [], 0.1)
                for here in ready:
                    there = server if here is client else client
                    try:
                        data = here.recv(1 << 16)
                    except OSError:
                        return
                    if not data:
                        return
                    if here is client and self.cut_at is not None and self.cut_at in data:
                        self.cut_at = None
                        self.cuts += 1
                        self.refuses = self.refuses_after_cut
                        if self.delivers:
                            server.sendall(data)
                            server.settimeout(0.2)
                            with contextlib.suppress(TimeoutError):  # there is no answer to half of a request
                                server.recv(1 << 16)
                        return
                    with contextlib.suppress(OSError):
                        there.sendall(data)
