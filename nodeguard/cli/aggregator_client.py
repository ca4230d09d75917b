"""Asking the aggregator that runs on this machine, or in this container."""

from __future__ import annotations

import os
import shlex
import socket
from argparse import Namespace
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from nodeguard.aggregator.api.requests import SOCKET_PATH, ActionResult, ErrorResponse
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import ArgumentParser, UsageError

ENVIRONMENT = "NODEGUARD_AGGREGATOR_SOCKET"
_EXEC = "kubectl exec -n nodeguard deploy/nodeguard-aggregator --"

# Seconds for an answer: to tell takes no time; to decide waits for the cluster.
_WITHIN, _DECIDED_WITHIN = 10.0, 120.0

_Form = TypeVar("_Form", bound=Struct)


class NotFoundError(UsageError):
    """What is asked for is not there."""


def add_socket(parser: ArgumentParser) -> None:
    """Add --socket."""
    parser.add_argument(
        "--socket", metavar="PATH", help=f"where the aggregator listens (${ENVIRONMENT}, else {SOCKET_PATH})"
    )


def add_format(parser: ArgumentParser) -> None:
    """Add --format."""
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how to say it")


class AggregatorClient:
    """The aggregator at a socket, for one command."""

    def __init__(self, options: Namespace, command: str, arguments: Sequence[str]) -> None:
        """options: of the command line. command, arguments: as they were written, for what is to be said
        where no aggregator is.
        """
        self._path: str = options.socket or os.environ.get(ENVIRONMENT) or SOCKET_PATH
        self._command = shlex.join(["nodeguard", command, *arguments])

    def get(self, target: str, form: type[_Form]) -> _Form:
        """What it tells. target: the path below /v1/. Raises UsageError."""
        return self._asked("GET", target, form, None, _WITHIN)

    def post_and_print(self, target: str, wanted: Struct, form: str) -> None:
        """Have something done, and print what was, as text or json. Raises UsageError where it was not."""
        done = self.post(target, wanted)
        print_output(to_json(done) if form == "json" else done.message)

    def post(self, target: str, wanted: Struct) -> ActionResult:
        """Have something done; return what was. Raises UsageError where it was not."""
        return self._asked("POST", target, ActionResult, wanted, _DECIDED_WITHIN)

    def _asked(
        self, method: str, target: str, form: type[_Form], wanted: Struct | None, within: float
    ) -> _Form:
        connection = _Local(self._path, within)
        try:
            body = None if wanted is None else msgspec.json.encode(wanted)
            connection.request(method, f"/v1/{target}", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            said = response.read()
            if response.status == 200:
                return msgspec.json.decode(said, type=form)
            error = msgspec.json.decode(said, type=ErrorResponse).error
        except UnicodeEncodeError as unsaid:
            raise UsageError(f"{unsaid.object!r} is no UTF-8: write it anew") from None
        except TimeoutError:
            late = ", and it may be done still: see nodeguard status" if wanted else ": see its log"
            raise UsageError(f"{self._path}: no answer within {within:g} s{late}") from None
        except PermissionError:
            raise UsageError(
                f"{self._path}: only root and the user that the aggregator runs as may ask: run it as one"
            ) from None
        except msgspec.DecodeError as unread:
            raise UsageError(
                f"{self._path}: the answer is not understood ({unread}): is it of another version?"
            ) from None
        except (OSError, HTTPException) as absent:
            raise UsageError(
                f"no aggregator answers at {self._path} ({absent}): run it where one is, as with "
                f"{_EXEC} {self._command}, or name its --socket"
            ) from None
        finally:
            connection.close()
        raise (NotFoundError if response.status == 404 else UsageError)(error)


class _Local(HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str, within: float) -> None:
        super().__init__("localhost", timeout=within)
        self._path = path

    def connect(self) -> None:
        """Connect. Raises OSError."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def quote_name(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="", errors="surrogateescape")


def to_json(told: Struct) -> str:
    """What was told as JSON, indented for people."""
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode()
