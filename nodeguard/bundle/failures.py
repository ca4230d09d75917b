"""The words for a reading that fails, in errors.yaml, calls.json and nvml.json, and what they raise."""

from __future__ import annotations

import errno
import os
import re
from typing import Any

from nodeguard.bundle.defect import BundleError
from nodeguard.model.failure import HungError, StalledError, UnansweredError

# Raised alike for files, system calls and NVML calls.
UNANSWERED: dict[str, type[UnansweredError]] = {"stall": StalledError, "hang": HungError}

_NVML_ERROR = re.compile(r"NVML_ERROR_[A-Z0-9_]+")


def failure_from_name(word: str, what: str) -> OSError | UnansweredError:
    """The exception that a word stands for: `stall`, `hang` or an errno name. what: the path or call."""
    if word in UNANSWERED:
        return UNANSWERED[word](what)
    return os_error(getattr(errno, word), what)


def failure_name(error: OSError | UnansweredError) -> str:
    """The word for an exception: failure(word_of(error), …) is like it. An OSError without errno is EIO."""
    if isinstance(error, OSError):
        return errno.errorcode.get(error.errno or errno.EIO, "EIO")
    return "hang" if isinstance(error, HungError) else "stall"


def os_error(code: int, what: str) -> OSError:
    """The error with which a live machine would refuse to read. code: an errno."""
    return OSError(code, os.strerror(code), what)


def is_system_failure(word: object) -> bool:
    """Whether a word is `stall`, `hang` or the name of an errno."""
    return isinstance(word, str) and (word in UNANSWERED or (word[:1] == "E" and hasattr(errno, word)))


def is_nvml_failure(word: object) -> bool:
    """Whether a word is `stall`, `hang` or has the form of an NVML error's name."""
    return isinstance(word, str) and (word in UNANSWERED or _NVML_ERROR.fullmatch(word) is not None)


def check_result(result: dict[str, Any], file: str, field: str, *, nvml: bool) -> None:
    """Raise BundleError where a result holds an `error` that is unknown or does not stand alone."""
    if "error" not in result:
        return
    word = result["error"]
    if not (is_nvml_failure(word) if nvml else is_system_failure(word)):
        names = "an NVML_ERROR_… name" if nvml else "an errno name such as EIO"
        raise BundleError(
            file, f"{field}.error", f"{word!r} is no known failure", f"write {names}, stall or hang"
        )
    if len(result) > 1:
        raise BundleError(file, field, "holds an error and values", "keep the error, or the values")
