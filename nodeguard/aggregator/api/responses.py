"""Requests and responses of the API: JSON in and out, with errors that name the remedy."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from math import ceil
from typing import TypeVar

import msgspec
from aiohttp import web
from msgspec import Struct

from nodeguard.aggregator.api.requests import ErrorResponse
from nodeguard.aggregator.backends.operator_actions import OperatorActionError
from nodeguard.local.unix_socket import is_authorized_peer
from nodeguard.model.eviction import PodReadError
from nodeguard.model.printable import printable_json

logger = logging.getLogger(__name__)

# Bytes of a request's body, and characters of a name in its path.
MAX_BODY = 16 * 1024
MAX_NAME = 253

_Wanted = TypeVar("_Wanted", bound=Struct)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RefusedError(Exception):
    """A request is refused with an HTTP status and an error."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


@web.middleware
async def authorize_and_report_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Refuse other users, and return every error in the same form."""
    transport = request.transport
    peer = transport.get_extra_info("socket") if transport is not None else None
    if peer is None or not is_authorized_peer(peer):
        return _error(403, "only root, or the user that the aggregator runs as, may ask: ask as one of them")
    try:
        return await handler(request)
    except RefusedError as refused:
        return _error(refused.status, str(refused))
    except (OperatorActionError, PodReadError) as error:
        return _error(409, str(error), ceil(error.retry_after) if isinstance(error, PodReadError) else 0)
    except web.HTTPRequestEntityTooLarge:
        return _error(413, f"the request is too large: {MAX_BODY} bytes at most")
    except web.HTTPMethodNotAllowed as error:
        allowed = " or ".join(sorted(error.allowed_methods))
        return _error(405, f"{request.method} is not for {request.path[:MAX_NAME]}: use {allowed}")
    except web.HTTPException as error:
        remedy = "there is /v1/status, /v1/nodes, /v1/domains, /v1/incidents and /v1/history"
        return _error(error.status, f"{request.path[:MAX_NAME]}: {error.reason}: {remedy}")
    except Exception as error:
        fields = {"method": request.method, "path": request.path[:MAX_NAME]}
        logger.exception("internal error in an API request, please report it", extra=fields)
        return _error(500, f"{type(error).__name__}: {error}: see the aggregator's log")


async def decoded_body(request: web.Request, form: type[_Wanted]) -> _Wanted:
    """Return the body of a request as a struct. Raises RefusedError."""
    try:
        return msgspec.json.decode(printable_json(await request.read() or b"{}"), type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(400, f"{error}: both sides must be of one version") from None


def name_in_path(request: web.Request) -> str:
    """Return the name in the path of a request. Raises RefusedError."""
    name = request.match_info["name"]
    if len(name) > MAX_NAME:
        raise RefusedError(404, f"a name has {MAX_NAME} characters at most: this is none")
    return name


def no_incident(name: str) -> RefusedError:
    """Return the error of a name without an incident."""
    return RefusedError(404, f"there is no incident '{name}': see nodeguard get incidents --all")


def answer(content: Struct, status_code: int = 200) -> web.Response:
    """Return a struct as a response in JSON."""
    return web.Response(
        body=msgspec.json.encode(content),
        status=status_code,
        content_type="application/json",
        charset="utf-8",
    )


def _error(status_code: int, error: str, retry_after: int = 0) -> web.Response:
    return answer(ErrorResponse(error, retry_after), status_code)
