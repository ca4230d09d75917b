"""Digests of a report, which change exactly when there is something to send. Pure."""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from nodeguard.wire.report import Report, ReportedFinding, ReportedInjection

_ENCODER = msgspec.json.Encoder(order="deterministic")


def digest(report: Report) -> str:
    """Return the digest of the state: verdict, findings, unreadable targets, inventory and versions.

    It leaves out sequence and ages, and the text: messages and evidence change with every reading of a
    temperature, which is no transition. It leaves out passing checks too: the end of a finding changes it.
    """
    findings = tuple(
        replace(finding, age=0.0, message="", evidence=(), omitted=0, note="") for finding in report.findings
    )
    unreadable = tuple(replace(targets, reason="") for targets in report.unreadable)
    return _hash(replace(_state(report), findings=findings, unreadable=unreadable, passing=()))


def text_digest(report: Report) -> str:
    """Return the digest of the state with its text and passing checks, but without ages."""
    return _hash(replace(_state(report), findings=tuple(map(_finding_without_ages, report.findings))))


def _state(report: Report) -> Report:
    return replace(
        report,
        version=0,
        sequence=0,
        digest="",
        age=0.0,
        acknowledged=(),
        results=(),
        dropped=0,
        leaving=False,
        received={},
        injections=tuple(map(_without_ages, report.injections)),
    )


def _without_ages(injection: ReportedInjection) -> ReportedInjection:
    return replace(injection, finding=_finding_without_ages(injection.finding), seconds=0.0)


def _finding_without_ages(finding: ReportedFinding) -> ReportedFinding:
    return replace(
        finding, age=0.0, evidence=tuple(replace(evidence, age=0.0) for evidence in finding.evidence)
    )


def _hash(report: Report) -> str:
    return hashlib.blake2b(_ENCODER.encode(report), digest_size=16).hexdigest()
