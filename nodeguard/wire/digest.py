"""What two reports have in common: digests that change exactly when there is something to tell. Pure."""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from nodeguard.wire.report import Report

_ENCODER = msgspec.json.Encoder(order="deterministic")


def digest(report: Report) -> str:
    """Of the state: verdict, findings, what is blind, inventory and versions.

    It leaves out what names or ages a message and how things are worded: a message and its evidence change
    with every reading of a temperature, and that is no transition. So it does what is proven to be in order:
    what a finding's end proves is told with it.
    """
    findings = tuple(
        replace(one, age=0.0, message="", evidence=(), more=0, note="") for one in report.findings
    )
    unread = tuple(replace(one, why="") for one in report.unreadable)
    return _hashed(replace(_bare(report), findings=findings, unread=unread, proven=()))


def text_digest(report: Report) -> str:
    """Of the state with its words and what is proven, but not with how long anything has lasted."""
    findings = tuple(
        replace(one, age=0.0, evidence=tuple(replace(seen, age=0.0) for seen in one.evidence))
        for one in report.findings
    )
    return _hashed(replace(_bare(report), findings=findings))


def _bare(report: Report) -> Report:
    return replace(
        report,
        version=0,
        sequence=0,
        digest="",
        age=0.0,
        acknowledged=(),
        answers=(),
        dropped=0,
        leaving=False,
    )


def _hashed(report: Report) -> str:
    return hashlib.blake2b(_ENCODER.encode(report), digest_size=16).hexdigest()
