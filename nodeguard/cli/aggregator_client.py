"""Client of the aggregator that runs on this machine, or in this container: HTTP over its socket."""

from __future__ import annotations

import os
import shlex
import socket
from argparse import Namespace
from collections.abc import Iterator, Sequence
from http.client import BadStatusLine, HTTPConnection, HTTPException, RemoteDisconnected
from typing import TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from nodeguard.aggregator.api.requests import SOCKET_PATH, ActionResult, ErrorResponse
from nodeguard.cli.streams import as_document, is_document, print_message, print_output, require_fit
from nodeguard.cli.usage import ArgumentParser, UsageError, did_you_mean
from nodeguard.fleet_api.schema.incident import IncidentList, IncidentView
from nodeguard.fleet_api.schema.incident_summary import IncidentSummary
from nodeguard.model.json_decoder import JsonDecoder

ENVIRONMENT = "NODEGUARD_AGGREGATOR_SOCKET"
_EXEC = "kubectl exec -n nodeguard deploy/nodeguard-aggregator --"

# Lists of `nodeguard get` that the values of an agent replace.
_DEVICE_LISTS = frozenset({"gpus", "gpu", "ports", "port"})

# Seconds for a response: a query takes no time; a decision waits for the cluster.
_QUERY_TIMEOUT, _DECISION_TIMEOUT = 10.0, 120.0

_Response = TypeVar("_Response", bound=Struct)


class UnreachableError(UsageError):
    """No aggregator answers. The message has the cause, then a line for each remedy."""

    def __init__(self, cause: str, remedies: Sequence[str]) -> None:
        super().__init__("\n  ".join((f"{cause}:", *remedies)))
        self.cause = cause
        self.remedies = tuple(remedies)


class NotFoundError(UsageError):
    """The requested object does not exist."""


class RetryLaterError(UsageError):
    """The API server of Kubernetes gave the aggregator no answer. retry_after: seconds until the next try."""

    def __init__(self, error: ErrorResponse) -> None:
        super().__init__(error.error)
        self.retry_after = error.retry_after


def add_socket(parser: ArgumentParser) -> None:
    """Add --socket, and the default of `connect`: the class of the client that answers the command."""
    parser.set_defaults(connect=AggregatorClient)
    parser.add_argument(
        "--socket",
        metavar="PATH",
        help=f"socket of the aggregator (default: ${ENVIRONMENT}, else {SOCKET_PATH})",
    )


class AggregatorClient:
    """The aggregator at a socket, for one command."""

    def __init__(self, options: Namespace) -> None:
        """options: of the command line, with its text for the error where no aggregator answers."""
        self._path: str = options.socket or os.environ.get(ENVIRONMENT) or SOCKET_PATH
        self._command: str = options.command_line

    def get(self, target: str, schema: type[_Response], *, reads_cluster: bool = False) -> _Response:
        """Return a response. target: the path below /v1/. reads_cluster: whether the aggregator asks the API
        server first. Raises UsageError.
        """
        timeout = _DECISION_TIMEOUT if reads_cluster else _QUERY_TIMEOUT
        return self._request("GET", target, schema, None, timeout)

    def post_and_print(self, target: str, body: Struct, output: str) -> None:
        """Send a decision, and print its outcome as text, json or yaml. Raises UsageError where it failed."""
        require_fit(ActionResult(""), output)
        print_result(self.post(target, body), output)

    def post(self, target: str, body: Struct) -> ActionResult:
        """Send a decision; return its outcome. Raises UsageError where it failed."""
        return self.request(target, body, ActionResult)

    def request(self, target: str, body: Struct, schema: type[_Response]) -> _Response:
        """Send a decision; return the response. Raises UsageError where it failed."""
        return self._request("POST", target, schema, body, _DECISION_TIMEOUT)

    def _request(
        self, method: str, target: str, schema: type[_Response], body: Struct | None, timeout: float
    ) -> _Response:
        connection = _UnixConnection(self._path, timeout)
        try:
            content = None if body is None else msgspec.json.encode(body)
            connection.request(method, f"/v1/{target}", content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            if response.status == 200:
                return JsonDecoder(schema).decode(text)
            error = JsonDecoder(ErrorResponse).decode(text)
        except UnicodeEncodeError as invalid:
            raise UsageError(f"{invalid.object!r} is not UTF-8: correct it") from None
        except TimeoutError:
            remedy = ", and it may still be carried out: see nodeguard status" if body else ": see its log"
            raise UsageError(f"{self._path}: no response within {timeout:g} s{remedy}") from None
        except PermissionError:
            raise UsageError(
                f"{self._path}: permission denied: run this as root, or as the user of the aggregator"
            ) from None
        except msgspec.DecodeError as invalid:
            raise UsageError(
                f"{self._path}: the response is invalid ({invalid}): check that this is the socket of an "
                "aggregator, and that both sides have one version"
            ) from None
        except BadStatusLine as other:
            # A connection that ends without any response is of an aggregator that stops.
            is_other = not isinstance(other, RemoteDisconnected)
            raise self._unreachable("another program answers there" if is_other else str(other)) from None
        except (OSError, HTTPException) as unreachable:
            raise self._unreachable(getattr(unreachable, "strerror", None) or str(unreachable)) from None
        finally:
            connection.close()
        if error.retry_after:
            raise RetryLaterError(error)
        raise (NotFoundError if response.status == 404 else UsageError)(error.error)

    def _unreachable(self, reason: str) -> UnreachableError:
        words = list(_without_socket(shlex.split(self._command)))
        command = shlex.join(words)
        values = " --values" if _DEVICE_LISTS & set(words) else ""
        remedies = (
            "run it on the machine of the aggregator, or name its socket with --socket",
            f"in Kubernetes: {_EXEC} {command}",
            f"from a laptop: kubectl {command}",
            f"the agent of this node only: nodeguard status --agent{values}",
        )
        return UnreachableError(f"no aggregator answers at {self._path} ({reason})", remedies)


def _without_socket(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command without the path of a socket on this machine."""
    previous = ""
    for word in words:
        if word != "--socket" != previous and not word.startswith("--socket="):
            yield word
        previous = word


def print_result(result: ActionResult, output: str) -> None:
    """Print the outcome of a decision as text, or as a document of the output."""
    if is_document(output):
        print_output(as_document(result, output))
    else:
        print_message(result.message)


class _UnixConnection(HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect. Raises OSError."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def quote_name(name: str) -> str:
    """Return a name as a segment of a path."""
    return quote(name, safe="", errors="surrogateescape")


_SHOWN = 8


def resolve_incident(client: AggregatorClient, text: str) -> str:
    """Return the name of the incident that a text identifies. Raises UsageError, NotFoundError for none."""
    try:
        return client.get(f"incidents/{quote_name(text)}", IncidentView).name
    except NotFoundError:
        incidents = client.get("incidents?state=all", IncidentList).incidents
    matches = matching_incidents(incidents, text)
    if len(matches) == 1:
        return matches[0].name
    if matches:
        names = ", ".join(incident.name for incident in matches[:_SHOWN])
        more = f" and {len(matches) - _SHOWN} more" if len(matches) > _SHOWN else ""
        raise UsageError(f"'{text}' matches several incidents: {names}{more}: write one of these names")
    hint = did_you_mean(text, [incident.name for incident in incidents])
    raise NotFoundError(f"incident '{text}' not found: {hint}see nodeguard get incidents --all")


def matching_incidents(incidents: tuple[IncidentSummary, ...], text: str) -> list[IncidentSummary]:
    """Return the incidents that a text identifies: unresolved ones first where both kinds match."""
    matches = [incident for incident in incidents if _matches(incident, text)]
    unresolved = [incident for incident in matches if incident.state.slug != "resolved"]
    return unresolved or matches


def _matches(incident: IncidentSummary, text: str) -> bool:
    subject = incident.node or incident.domain or incident.resource
    return bool(text) and (
        incident.name.startswith(text)
        or text in {subject, f"{subject}/{incident.cause}", f"{subject}/{incident.resource}"}
    )
