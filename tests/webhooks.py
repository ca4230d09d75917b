"""A receiver of webhooks, which records their bodies."""

from __future__ import annotations

import json
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nodeguard.aggregator.certificates.issue import CertificateAuthority, issue_serving_certificate


class WebhookReceiver:
    """Receives JSON by POST at `url`. status: of each response; bodies, as JSON and as received, and headers are
    recorded if it is 200. limit: bytes of a body; a larger one is refused. response_headers: of each response. fault: instead of a response, `drop` closes the
    connection, `hang` waits until the end, `garbage` sends no HTTP. requests: all of them. address: where it
    listens.
    """

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.bodies: list[dict[str, Any]] = []
        self.contents: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.limit = sys.maxsize
        self.response_headers: dict[str, str] = {}
        self.fault = ""
        self.requests = 0
        self._stopped = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests += 1
                if receiver.fault:
                    self._fail(receiver.fault)
                    return
                # The test may change the status meanwhile.
                status = receiver.answer() if len(content) <= receiver.limit else 413
                if status == 200 and not receiver.handle(json.loads(content)):
                    self.close_connection = True
                    return
                if status == 200:
                    receiver.contents.append(content)
                    receiver.bodies.append(json.loads(content))
                    receiver.headers.append(dict(self.headers))
                self.send_response(status)
                for name, value in receiver.response_headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def _fail(self, fault: str) -> None:
                self.close_connection = True
                if fault == "hang":
                    receiver._stopped.wait()
                elif fault == "garbage":
                    self.wfile.write(b"\x00\x01 no HTTP\r\n\r\n")

            def log_message(self, *_: object) -> None:
                pass

        self._address = address
        self._server = ThreadingHTTPServer((address, 0), Handler)
        self.url = f"http://{address}:{self._server.server_port}/"

    def answer(self) -> int:
        """Return the status of the next response."""
        return self.status

    def handle(self, body: dict[str, Any]) -> bool:
        """Handle an accepted body. Returns whether to respond; if not, the connection is closed."""
        return True

    def encrypt(self, authority: CertificateAuthority, directory: Path) -> None:
        """Serve TLS with a certificate of an authority. directory: for its files."""
        issued = issue_serving_certificate(authority, [self._address], time.time())
        files = directory / "receiver.crt", directory / "receiver.key"
        for file, text in zip(files, (issued.certificate, issued.key), strict=True):
            file.write_text(text)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://{self._address}:{self._server.server_port}/"

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()
