"""The result of one check of an installation."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class DiagnosticStatus(StrEnum):
    """The status of a check, best first. `skipped`: it does not apply here, or could not be made."""

    PASSED = "passed"
    SKIPPED = "skipped"
    WARNING = "warning"
    FAILED = "failed"


class Diagnostic(Struct, frozen=True):
    """The result of one check. name: of the check. message: what was found. remedy: empty if it passed."""

    name: str
    status: DiagnosticStatus
    message: str
    remedy: str = ""


def passed(name: str, message: str) -> Diagnostic:
    """Return the result of a check that passed."""
    return Diagnostic(name, DiagnosticStatus.PASSED, message)


def skipped(name: str, message: str) -> Diagnostic:
    """Return the result of a check that does not apply."""
    return Diagnostic(name, DiagnosticStatus.SKIPPED, message)


def warning(name: str, message: str, remedy: str) -> Diagnostic:
    """Return the result of a check that found a risk."""
    return Diagnostic(name, DiagnosticStatus.WARNING, message, remedy)


def failed(name: str, message: str, remedy: str) -> Diagnostic:
    """Return the result of a check that found a fault."""
    return Diagnostic(name, DiagnosticStatus.FAILED, message, remedy)
