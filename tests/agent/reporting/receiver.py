"""An aggregator of tests, which loses, delays, duplicates and garbles messages as the test demands."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nodeguard.wire.encoding import EncodingError, decode_message, encode
from nodeguard.wire.instruction import Instruction, Reply
from nodeguard.wire.report import VERSION, Report
from nodeguard.wire.sequence import Acceptance, SequenceState, accept_message
from tests.ports import free_ports
from tests.waiting import PATIENCE

TLS = Path(__file__).parent / "tls"
PAIR = (TLS / "server.pem", TLS / "server.key")


class ConflictError(Exception):
    """A message that conflicts with others of its node."""


class Receiver:
    """Stores the reports that it applied. fault: returns the fault of a request, see Handler.do_POST."""

    def __init__(self) -> None:
        self.fault: Callable[[], str] = lambda: ""
        self.memory: dict[str, SequenceState] = {}
        self.now: Callable[[], float] = time.monotonic
        self.applied: list[Report] = []
        self.beats = 0
        self.requests = 0
        self.connections = 0
        self.tokens: list[str | None] = []
        self.instructions: dict[str, Instruction] = {}
        self.injectable: tuple[str, ...] = ()
        self.late: list[bytes] = []
        self.over = threading.Event()
        self.address = ""

    def apply(self, body: bytes) -> Reply:
        """Apply a message if it is new. Raises EncodingError, ConflictError."""
        message = decode_message(body)
        before = self.memory.get(message.node, SequenceState())
        self.memory[message.node], acceptance = accept_message(before, message, self.now())
        if acceptance.is_refusal:
            raise ConflictError
        for identity in message.acknowledged:
            self.instructions.pop(identity, None)
        resend = False
        if isinstance(message, Report):
            if acceptance == Acceptance.ACCEPTED:
                self.applied.append(message)
        else:
            self.beats += 1
            of_node = [report for report in self.applied if report.node == message.node]
            resend = not of_node or of_node[-1].digest != message.digest
        return Reply(VERSION, message.sequence, resend, tuple(self.instructions.values()), self.injectable)


# Faults by what they do to the answer: its content, and its status and headers.
_CONTENT: dict[str, Callable[[bytes], bytes]] = {
    "garble": lambda content: content.replace(b":", b"\x00"),
    "another": lambda _: encode(Reply(VERSION, 4)),
    "no length": lambda content: content + b" " * 50_000,
    "large": lambda _: b" " * 200_000,
}
_HEAD = {
    "many headers": "200 OK\r\n" + "X-Long: {0}\r\nX-Longer: {0}".format("x" * 60_000),
    "busy": "503 Busy\r\nRetry-After: 7",
    "unauthorised": "401 Unauthorized",
    "refuse": "409 Conflict",
    "close": "200 OK\r\nConnection: close",
    "no length": "200 OK\r\nConnection: close",
}
_WHOLE = {"not HTTP": b"\x15\x03\x01 hello\r\n\r\n", "endless": b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000}


def _answered(receiver: Receiver, fault: str, body: bytes) -> bytes:
    """Return the bytes of the response; none if the connection is only closed."""
    if fault in {"lose request", "late"}:
        receiver.late += [body] if fault == "late" else []
        return b""
    if fault == "garble request":
        body = body.replace(b'"version"', b'"version\x00')
    head, content = _HEAD.get(fault, "200 OK"), b""
    try:
        for _ in range({"duplicate": 2, "refuse": 0}.get(fault, 1)):
            content = encode(receiver.apply(body))
    except EncodingError:
        head = "400 Bad Request"
    except ConflictError:
        head = "409 Conflict"
    late, receiver.late = receiver.late, []
    for message in late:
        with suppress(ConflictError):
            receiver.apply(message)
    if fault == "lose reply":
        return b""
    if fault.startswith("moved "):
        head = f"307 Moved\r\nLocation: {fault.removeprefix('moved ')}"
    content = _CONTENT.get(fault, bytes)(content)
    length = "" if fault == "no length" else f"Content-Length: {len(content)}\r\n"
    whole = f"HTTP/1.1 {head}\r\n{length}\r\n".encode() + content
    return _WHOLE.get(fault, whole[:-2] if fault == "truncate" else whole)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    receiver: Receiver

    def setup(self) -> None:
        super().setup()
        self.receiver.connections += 1

    def do_POST(self) -> None:
        receiver = self.receiver
        receiver.requests += 1
        receiver.tokens.append(self.headers["Authorization"])
        body = self.rfile.read(int(self.headers["Content-Length"]))
        fault = receiver.fault()
        answer = _answered(receiver, fault, body)
        try:
            if fault == "drip":
                for at in range(len(answer)):
                    self.wfile.write(answer[at : at + 1])
                    if receiver.over.wait(0.05):
                        break
            elif fault == "hang":
                receiver.over.wait(PATIENCE)
            else:
                self.wfile.write(answer)
        except OSError:
            self.close_connection = True
        if not answer or fault in {
            "drip",
            "hang",
            "truncate",
            "not HTTP",
            "endless",
            "close",
            "no length",
            "close silently",
        }:
            self.close_connection = True

    def log_message(self, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: Any) -> None:
        pass


@contextmanager
def receiving(*, tls: bool = False, at: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[Receiver]:
    """Run a receiver on a free port, or at an address."""
    receiver = Receiver()
    handler = type("OneHandler", (Handler,), {"receiver": receiver})
    with Server(at, handler) as server:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*PAIR)
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        name = "https://localhost" if tls else "http://127.0.0.1"
        receiver.address = f"{name}:{server.server_port}/v1/report"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.over.set()
            server.shutdown()
            thread.join()


def closed_port() -> int:
    """Return a port on which nothing listens."""
    return free_ports(1)[0]
