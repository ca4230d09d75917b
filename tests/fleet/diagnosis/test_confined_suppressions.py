"""Tests for nodeguard.fleet.diagnosis.suppressed_checks: suppressions that apply to some nodes only, over restarts."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from nodeguard.kube.incident_object import decode_incident
from nodeguard.kube.incident_projection import incident_status, to_incident
from nodeguard.model.incident import Incident
from tests.fleet.diagnosis.test_suppressed_checks import advance, lost, quiet_fleet, scattered, suppressed
from tests.fleet.scene import Fleet

SIZE = 160
NODES = sorted(scattered(quiet_fleet(SIZE), 20))
OTHERS = [number for number in range(SIZE) if number not in NODES]


def confined() -> Fleet:
    """Return a fleet with a false alarm that lasts: its check is suppressed on the 20 nodes only."""
    made = quiet_fleet(SIZE)
    for number in NODES:
        made.report(number, lost())
    advance(made, 30_000.0, 60.0)
    assert (made.marked(), suppressed(made)) == ([], {"gpu-lost"})
    return made


def restart(made: Fleet, incidents: list[Incident] | None = None, *, reports_first: bool = True) -> None:
    """Start a new aggregator with the recorded incidents. reports_first: whether the agents report before it
    plans.
    """
    incidents = made.planner.all_incidents() if incidents is None else incidents
    reports = {}
    for uid, report in made.reports.items():
        seconds = made.wall - made.received[uid].wall
        findings = tuple(replace(item, age=item.age + seconds) for item in report.findings)
        reports[uid] = replace(report, findings=findings)
    made.reports = reports if reports_first else {}
    made.restart(incidents=incidents)
    if not reports_first:
        made.carry_out(rounds=12)
        for uid, report in reports.items():
            made.reports[uid], made.received[uid] = report, made.now
            made.planner.record_report(uid, report, made.now)
    advance(made, 120.0, 30.0)


def stored(incident: Incident) -> Incident:
    """Return an incident as it is read back from its object in the cluster."""
    body = {
        "metadata": {"name": incident.name, "uid": "u", "resourceVersion": "7"},
        "status": incident_status(incident),
    }
    read = to_incident(decode_incident(msgspec.json.encode(body)))
    assert read is not None
    return read


def test_a_restart_confines_a_suppression_to_the_same_nodes() -> None:
    for reports_first in (True, False):
        made = confined()
        made.report(OTHERS[0], lost())
        advance(made, 60.0)
        restart(made, list(map(stored, made.planner.all_incidents())), reports_first=reports_first)
        made.report(OTHERS[1], lost())
        advance(made, 60.0)
        assert (made.marked(), suppressed(made)) == (OTHERS[:2], {"gpu-lost"})


def test_a_standalone_aggregator_reads_the_confinement_back() -> None:
    [incident] = (incident for incident in confined().planner.all_incidents() if not incident.node)
    assert incident.confinement is not None
    assert incident.confinement.nodes == len(NODES)
    assert msgspec.json.decode(msgspec.json.encode(incident), type=Incident) == incident


def test_a_suppression_that_was_stored_without_its_confinement_applies_to_all_nodes() -> None:
    made = confined()
    restart(made, [replace(incident, confinement=None) for incident in made.planner.all_incidents()])
    made.report(OTHERS[0], lost())
    advance(made, 60.0)
    assert (made.marked(), suppressed(made)) == ([], {"gpu-lost"})


def test_a_node_that_recovered_is_not_in_the_confinement_after_a_restart() -> None:
    made = confined()
    made.report(NODES[0])
    advance(made, 60.0)
    made.report(NODES[0], lost())
    advance(made, 60.0)
    assert made.marked() == [NODES[0]]
    restart(made)
    assert made.marked() == [NODES[0]]
    made.report(NODES[1])
    advance(made, 60.0)
    made.report(NODES[1], lost())
    advance(made, 60.0)
    assert (made.marked(), suppressed(made)) == (NODES[:2], {"gpu-lost"})


def test_a_confined_suppression_ends_after_a_restart_when_few_of_its_nodes_are_left() -> None:
    made = confined()
    for number in NODES[:8]:
        made.report(number)
    advance(made, 60.0)
    restart(made)
    assert suppressed(made) == {"gpu-lost"}
    for number in NODES[8:15]:
        made.report(number)
    advance(made, 60.0)
    assert (suppressed(made), made.marked()) == ({"gpu-lost"}, [])
    made.report(NODES[15])
    advance(made, 60.0)
    assert (suppressed(made), made.marked()) == (set(), NODES[16:])


def test_the_confinement_is_recorded_once() -> None:
    made = confined()
    restart(made)
    made.wall += 0.4
    assert not [incident for incident in made.plan().incidents if not incident.node]
