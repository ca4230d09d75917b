"""calls.json: results of system calls and of requests to the metadata service, by call."""

from __future__ import annotations

from typing import Any

import msgspec

from nodeguard.bundle.failures import BundleError, check_result

# Prefix of a request to the cloud's metadata service: `http(GET http://169.254.169.254/…)`.
HTTP = "http("

# Results by call; None if a frame removes one.
Answers = dict[str, dict[str, Any]]
AnswerChanges = dict[str, dict[str, Any] | None]


def read_calls(data: bytes, file: str, *, base: bool) -> AnswerChanges:
    """Return the content of calls.json. Only a frame may remove an entry. Raises BundleError."""
    calls: AnswerChanges = decode_json(data, file, dict[str, Any])
    for call, result in calls.items():
        if result is None and not base:
            continue
        if not isinstance(result, dict):
            raise BundleError(
                file, call, "is not an object", 'write the fields of the result, or {"error": "EIO"}'
            )
        check_result(result, file, call, nvml=False)
        if call.startswith(HTTP) and "error" not in result:
            _check_response(result, file, call)
    return calls


def _check_response(result: dict[str, Any], file: str, call: str) -> None:
    if type(result.get("status")) is not int or not isinstance(result.get("body", ""), str):
        remedy = 'write {"status": 200, "body": "…"}, or {"error": "ETIMEDOUT"}'
        raise BundleError(file, call, "is not an HTTP response", remedy)


def decode_json(data: bytes, file: str, shape: Any) -> Any:
    """Return a JSON document of a given shape. Raises BundleError with the invalid field."""
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        if "truncated" in str(error):
            raise BundleError(file, "", "is cut short", "copy it again") from error
        problem, _, field = str(error).partition(" - at `$")
        field = field.strip("`.").replace("[...]", "")
        # msgspec's messages begin with a capital; here they follow a colon. Names keep their capital.
        if not problem.startswith("JSON"):
            problem = problem[:1].lower() + problem[1:]
        raise BundleError(file, field, problem, "write what the format asks for") from error
