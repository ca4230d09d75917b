"""A metadata service for tests, on this machine: it answers as the clouds do, or with invalid responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from tests.waiting import PATIENCE

TOKEN = "AQAEAF-token=="
TOKEN_PATH = "/latest/api/token"

# A text is an answer of status 200; a number is only a status; bytes are sent as they are; the rest does as it
# pleases.
Answer = str | int | bytes | Callable[["Handler"], None]


class Server(ThreadingHTTPServer):
    """answers: by path with query; any other path is 404. asked: method and path in order. headers: of the
    last request. over: set when the server ends, for answers that wait."""

    daemon_threads = True

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = dict(answers)
        self.asked: list[tuple[str, str]] = []
        self.headers: dict[str, str] = {}
        self.tokens = [TOKEN]
        self.over = Event()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.server_port

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a closed connection: some tests close it."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self._note()
        headers = self.headers
        if self.path.startswith("/latest/") and headers["X-aws-ec2-metadata-token"] != self.server.tokens[-1]:
            self.send(401)
        elif self.path.startswith("/metadata/") and headers["Metadata"] != "true":
            self.send(400)
        elif self.path.startswith("/computeMetadata/") and headers["Metadata-Flavor"] != "Google":
            self.send(403)
        else:
            self._answer(self.server.answers.get(self.path, 404))

    def do_PUT(self) -> None:
        self._note()
        life = self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        token = self.server.answers.get(self.path, self.server.tokens[-1])
        self._answer(token if life and 1 <= int(life) <= 21_600 else 400)

    def do_POST(self) -> None:
        self._note()
        self.send(405)

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: tests read `asked`."""

    def _note(self) -> None:
        self.server.asked.append((self.command, self.path))
        self.server.headers = dict(self.headers)

    def _answer(self, answer: Answer) -> None:
        match answer:
            case str():
                self.send(200, answer.encode())
            case int():
                self.send(answer, b"why")
            case bytes():
                self.wfile.write(answer)
            case _:
                answer(self)


def silent(handler: Handler) -> None:
    """No answer at all."""
    handler.server.over.wait(PATIENCE)


def dripping(handler: Handler) -> None:
    """A head that never ends, a byte at a time, each within any time-out of its own."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.server.over.wait(0.01):
        handler.wfile.write(b"x")


def redirecting(handler: Handler) -> None:
    handler.send(302, Location=f"http://127.0.0.1:{handler.server.server_port}/elsewhere")


def endless(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not handler.server.over.is_set():
        handler.wfile.write(b"x" * 4096)


@contextmanager
def serving(answers: Mapping[str, Answer]) -> Iterator[Server]:
    with Server(answers) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
