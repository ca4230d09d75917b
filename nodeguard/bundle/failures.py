"""BundleError, and the names of failed reads in errors.yaml, calls.json and nvml.json."""

from __future__ import annotations

import errno
import os
import re
from typing import Any

from nodeguard.model.failure import HungError, StalledError, UnansweredError, UserError


def _shown(text: str) -> str:
    """Return a text as one line: unchanged if it is printable, else with escapes."""
    return text if text.isprintable() else ascii(text)[1:-1]


class BundleError(UserError):
    """A bundle that cannot be read, or not be written. Its str is one line: `file: field: problem: remedy`.

    file: path of the file or directory, as the user named the bundle. field: the field or line in it; empty
    for the whole file. problem: the defect. remedy: how to fix it.
    """

    def __init__(self, file: str, field: str, problem: str, remedy: str) -> None:
        super().__init__(": ".join(_shown(part) for part in (file, field, problem, remedy) if part))
        self.file = file
        self.field = field
        self.problem = problem
        self.remedy = remedy


# The same for files, system calls and NVML calls.
UNANSWERED: dict[str, type[UnansweredError]] = {"stall": StalledError, "hang": HungError}

_NVML_ERROR = re.compile(r"NVML_ERROR_[A-Z0-9_]+")


def failure_from_name(name: str, subject: str) -> OSError | UnansweredError:
    """Return the exception for `stall`, `hang` or the name of an errno. subject: the path or call."""
    if name in UNANSWERED:
        return UNANSWERED[name](subject)
    return os_error(getattr(errno, name), subject)


def failure_name(error: OSError | UnansweredError) -> str:
    """Return the name of an exception: the inverse of failure_from_name. An OSError without errno is EIO."""
    if isinstance(error, OSError):
        return errno.errorcode.get(error.errno or errno.EIO, "EIO")
    return "hang" if isinstance(error, HungError) else "stall"


def os_error(code: int, subject: str) -> OSError:
    """Return the error that a live machine raises. code: an errno."""
    return OSError(code, os.strerror(code), subject)


def is_system_failure(name: object) -> bool:
    """Return whether a name is `stall`, `hang` or the name of an errno."""
    return isinstance(name, str) and (name in UNANSWERED or (name[:1] == "E" and hasattr(errno, name)))


def is_nvml_failure(name: object) -> bool:
    """Return whether a name is `stall`, `hang` or has the form of an NVML error."""
    return isinstance(name, str) and (name in UNANSWERED or _NVML_ERROR.fullmatch(name) is not None)


def check_result(result: dict[str, Any], file: str, field: str, *, nvml: bool) -> None:
    """Raise BundleError if a result has an unknown `error`, or an `error` together with values."""
    if "error" not in result:
        return
    name = result["error"]
    if not (is_nvml_failure(name) if nvml else is_system_failure(name)):
        names = "an NVML_ERROR_… name" if nvml else "an errno name such as EIO"
        raise BundleError(
            file, f"{field}.error", f"{name!r} is not a known failure", f"write {names}, stall or hang"
        )
    if len(result) > 1:
        raise BundleError(file, field, "has an error and values", "keep the error, or the values")
