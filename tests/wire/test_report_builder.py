from __future__ import annotations

from math import inf, nan

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.finding import Evidence, Finding, Health, ReadFailure
from nodeguard.model.injection import Injection
from nodeguard.wire.digest import digest, text_digest
from nodeguard.wire.encoding import MESSAGE_LIMIT, decode_message, encode
from nodeguard.wire.report import Report, ReportedFinding, ReportedPassing
from nodeguard.wire.report_builder import NodeFacts, build_report
from nodeguard.wire.versions import VersionReceipts
from tests.wire.scene import FACTS, NOW, finding, verdict


def test_times_become_ages() -> None:
    report = build_report(verdict(finding()), NOW, FACTS, 7)
    [reported] = report.findings
    assert (reported.age, reported.evidence[0].age, reported.evidence[0].count) == (600.0, 60.0, 3)
    assert (report.node, report.boot_id, report.sequence, report.agent) == ("node-7", "boot-a", 7, "0.1.0")
    assert reported.topologies == ("rack",)
    assert decode_message(encode(report)) == report


@pytest.mark.parametrize("since", [NOW.wall + 5.0, inf, -inf, nan])
def test_a_time_that_is_invalid_or_in_the_future_has_age_zero(since: float) -> None:
    assert build_report(verdict(finding(since=since)), NOW, FACTS).findings[0].age == 0.0


def test_new_versions_are_reported_with_their_ages_and_change_no_digest() -> None:
    received = {f"vbios/{number}": NOW.wall - number for number in range(40)}
    receipts = VersionReceipts(tuple(received), received)
    report = build_report(verdict(finding()), NOW, replace(FACTS, receipts=receipts))
    assert report.received == {f"vbios/{number}": float(number) for number in range(16)}
    assert report.digest == build_report(verdict(finding()), NOW, FACTS).digest
    assert text_digest(report) == text_digest(replace(report, received={}))
    assert decode_message(encode(report)) == report


def test_findings_with_health_ok_are_omitted() -> None:
    report = build_report(verdict(finding("over", health=Health.OK), health=Health.OK), NOW, FACTS)
    assert (report.findings, report.omitted, report.health) == ((), 0, Health.OK)


def test_the_digest_depends_on_the_state_and_not_on_ages_or_messages() -> None:
    first = build_report(verdict(finding()), NOW, FACTS, 7)
    later = replace(NOW, wall=NOW.wall + 30.0, mono=NOW.mono + 30.0)
    assert build_report(verdict(finding()), later, FACTS, 8).digest == first.digest == digest(first)
    assert text_digest(build_report(verdict(finding()), later, FACTS, 8)) == text_digest(first)
    warmer = build_report(verdict(finding(message="98 degrees")), NOW, FACTS)
    assert warmer.digest == first.digest
    assert text_digest(warmer) != text_digest(first)


@pytest.mark.parametrize(
    "other",
    [
        build_report(verdict(), NOW, FACTS),
        build_report(verdict(finding(), finding("second")), NOW, FACTS),
        build_report(verdict(finding(health=Health.FATAL)), NOW, FACTS),
        build_report(verdict(finding(component="GPU-2")), NOW, FACTS),
        build_report(verdict(finding(targets=("gpu/0000:3b:00/nvlink/1",))), NOW, FACTS),
        build_report(verdict(finding(), health=Health.FATAL), NOW, FACTS),
        build_report(verdict(finding(), unread=(ReadFailure("ib", ("node",), "x", "y"),)), NOW, FACTS),
        build_report(
            verdict(finding()), NOW, NodeFacts("node-7", "0.2.0", "c0ffee", FACTS.topologies, FACTS.inventory)
        ),
        build_report(verdict(finding()), NOW, NodeFacts("node-7", "0.1.0", "c0ffee", FACTS.topologies)),
        build_report(verdict(finding()), replace(NOW, boot_id="boot-b"), FACTS),
    ],
)
def test_every_other_state_has_another_digest(other: Report) -> None:
    assert other.digest != build_report(verdict(finding()), NOW, FACTS).digest


texts = st.text(max_size=30) | st.sampled_from(["\ud800", "\x00" * 5000, "😀" * 5000, "\\" * 900])
findings = st.builds(
    finding, texts, target=texts, component=texts, message=texts, note=texts, since=st.floats(),
    targets=st.lists(texts, max_size=100).map(tuple), health=st.sampled_from(Health),
    evidence=st.lists(st.builds(Evidence, texts, texts, st.floats(), st.integers(-5, 9)), max_size=9).map(tuple),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(findings, max_size=4), st.integers(1, 60))
def test_the_report_of_any_verdict_fits_a_message(some: list[Finding], times: int) -> None:
    report = build_report(verdict(*some * times), NOW, FACTS)
    data = encode(report)
    assert len(data) < MESSAGE_LIMIT
    assert decode_message(data) == report
    active = [finding for finding in some * times if finding.health != Health.OK]
    assert len(report.findings) + report.omitted == len(active)
    assert report.digest == digest(report)


def test_too_many_findings_are_cut_after_the_worst() -> None:
    large = [
        finding(f"check-{number}", targets=("😀" * 200,) * 64, message="x" * 9000) for number in range(300)
    ]
    report = build_report(verdict(*large), NOW, FACTS)
    assert report.findings[0].check == "check-0"
    assert report.findings[0].evidence == ()
    assert (report.findings[0].omitted, len(report.findings) + report.omitted) == (1, 300)


def test_passing_checks_are_reported_and_omitted_before_findings() -> None:
    passing = (ReportedPassing(("a", "b"), ("gpu/0000:3b:00",)),)
    report = build_report(replace(verdict(finding()), passing=passing), NOW, FACTS)
    assert report.passing == (ReportedPassing(("a", "b"), ("gpu/0000:3b:00",)),)
    assert report.digest == build_report(verdict(finding()), NOW, FACTS).digest
    assert report.findings[0].family == "thermal"
    many = (
        ReportedPassing(
            tuple(f"check-{n}" for n in range(200)), tuple("x" * 190 + str(n) for n in range(2000))
        ),
    )
    cut = build_report(replace(verdict(finding()), passing=many), NOW, FACTS)
    assert (cut.passing, len(cut.findings), cut.omitted) == ((), 1, 0)


LOST = Injection("1", finding("gpu-lost", health=Health.FATAL), "uid 0", NOW.wall + 60.0)


def test_injected_faults_are_apart_from_the_findings() -> None:
    plain = build_report(verdict(finding()), NOW, FACTS)
    report = build_report(verdict(finding()), NOW, FACTS, injections=(LOST,))
    assert decode_message(encode(report)) == report
    assert (report.findings, report.health) == (plain.findings, plain.health)
    [injected] = report.injections
    assert (injected.finding.check, injected.by, injected.seconds) == ("gpu-lost", "uid 0", 60.0)
    assert report.digest != plain.digest
    assert b"injections" not in encode(plain)


def test_the_digest_does_not_depend_on_the_age_of_an_injected_fault() -> None:
    first = build_report(verdict(), NOW, FACTS, injections=(LOST,))
    later = replace(NOW, wall=NOW.wall + 30.0, mono=NOW.mono + 30.0)
    second = build_report(verdict(), later, FACTS, injections=(LOST,))
    assert second.injections[0].seconds == 30.0
    assert (second.digest, text_digest(second)) == (first.digest, text_digest(first))


class OldReport(Struct, omit_defaults=True, tag_field="kind", tag="report"):
    """The fields of a report that a reader without injected faults decodes."""

    findings: tuple[ReportedFinding, ...] = ()


def test_a_reader_that_does_not_know_injected_faults_sees_no_fault() -> None:
    report = build_report(verdict(health=Health.OK), NOW, FACTS, injections=(LOST,))
    assert msgspec.json.decode(encode(report), type=OldReport).findings == ()


def test_injected_faults_of_any_size_fit_a_message() -> None:
    huge = finding("\U0001f600" * 5000, message="\x00" * 5000, note="\\" * 5000, targets=("x" * 999,) * 99)
    many = tuple(Injection(str(number), huge, "u" * 9999, inf) for number in range(8))
    assert len(encode(build_report(verdict(), NOW, FACTS, injections=many))) < MESSAGE_LIMIT
