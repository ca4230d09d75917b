"""Incidents in a list, and one in full, as they look."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.cli.render.resources import INCIDENT_TABLE, resource_lines
from nodeguard.fleet_api.incident import describe_incident, list_incidents
from nodeguard.fleet_api.text.incident import incident_view
from nodeguard.model.incident import OperatorDecision
from tests.cli.fleet_output import LEADER, look, page
from tests.fleet.scene import Fleet


def test_incidents_in_a_list(storm: Fleet) -> None:
    view = list_incidents(storm.planner, LEADER, storm.now)
    of_port = next(incident for incident in view.incidents if incident.cause == "port-down")
    few = replace(view, incidents=(view.incidents[0], of_port, *view.incidents[-2:]), omitted=3)
    few = replace(few, incidents=(replace(few.incidents[0], acknowledged="alice"), *few.incidents[1:]))
    assert look(resource_lines(INCIDENT_TABLE, few.incidents, 120, wide=False, omitted=3), 120) == page("""
    SEVERITY  NODE      DEVICE          CHECK      STATE     AGE         ACK    MESSAGE
    fatal     node-1    GPU 0000:3b:00  gpu-lost   withheld  2 min 10 s  alice  has fallen off the bus: Xid 79
    fatal     node-102  port mlx5_0/1   port-down  withheld  2 min 10 s  -      is down: polling
    fatal     node-2    GPU 0000:3c:00  gpu-ecc    marked    14 min      -      12 uncorrectable errors in SRAM
    suspect   node-11   GPU 0000:3b:00  gpu-hot    marked    2 min 10 s  -      91 °C, slowed by hardware
    and 3 more: use filters
    """)
    assert look(resource_lines(INCIDENT_TABLE, few.incidents, 160, wide=True), 160) == page("""
    SEVERITY  NODE      DEVICE          CHECK      STATE     AGE         ACK    ACTION     NAME                             MESSAGE
    fatal     node-1    GPU 0000:3b:00  gpu-lost   withheld  2 min 10 s  alice  reset-gpu  node-1-gpu-0000-3b-00-f750a6f0   has fallen off the bus: Xid 79
    fatal     node-102  port mlx5_0/1   port-down  withheld  2 min 10 s  -      reset-gpu  node-102-port-mlx5-0-1-690d486f  is down: polling
    fatal     node-2    GPU 0000:3c:00  gpu-ecc    marked    14 min      -      none       node-2-gpu-0000-3c-00-356027bb   12 uncorrectable errors in SRAM
    suspect   node-11   GPU 0000:3b:00  gpu-hot    marked    2 min 10 s  -      reset-gpu  node-11-gpu-0000-3b-00-6cfda3a9  91 °C, slowed by hardware
    """)


@pytest.mark.parametrize(
    ("age", "text"),
    [(0.2, "0 s"), (130.0, "2 min 10 s"), (1435.0, "23 min"), (4230.0, "1 h 10 min"), (90_000.0, "1 d 1 h")],
)
def test_a_long_age_in_a_table_has_no_small_units(storm: Fleet, age: float, text: str) -> None:
    incident = replace(list_incidents(storm.planner, LEADER, storm.now).incidents[0], age=age)
    row = look(resource_lines(INCIDENT_TABLE, [incident], 120, wide=False), 120).splitlines()[1]
    assert f"withheld  {text}  " in row


def test_an_incident_in_full(storm: Fleet) -> None:
    name = next(
        name
        for name, item in storm.planner.tracker.recorded.by_uid["uid-2"].items()
        if item.cause == "gpu-ecc"
    )
    view = describe_incident(
        storm.planner, replace(LEADER, decisions={name: OperatorDecision(name, "alice", "")}), name, storm.now
    )
    assert view is not None
    assert look(incident_view(view)) == page("""
    FATAL  gpu-ecc - GPU 0000:3c:00 of node-2
      message     12 uncorrectable errors in SRAM
      state       marked, new work is kept away: waits for gpu-ecc to pass on GPU
                  0000:3c:00 with fresh data
      scope       node node-2
      since       2023-11-14 22:12:20 UTC, 14 min ago
      changed     2023-11-14 22:26:20 UTC, just now
      component   GPU-1
      mark        quarantine, set 2023-11-14 22:13:30 UTC, 12 min 50 s ago
      waiting for gpu-ecc to pass on GPU 0000:3c:00 with fresh data
      ack         by alice
      see         nodeguard describe node node-2, nodeguard explain gpu-ecc
    """)


def test_a_suspect_mark_keeps_only_gangs_away(storm: Fleet) -> None:
    [name] = storm.planner.tracker.recorded.by_uid["uid-11"]
    view = describe_incident(storm.planner, LEADER, name, storm.now)
    assert view is not None
    assert "  state       marked, new gang work is kept away\n  scope       node node-11\n" in look(
        incident_view(view)
    )


def test_a_list_that_filters_leave_empty_names_what_they_left_out() -> None:
    lines = resource_lines(INCIDENT_TABLE, [], 80, wide=False, omitted=3, selected_from=5)
    assert [(line.text, line.style) for line in lines] == [
        ("no incidents: none of 5 matches", ""),
        ("and 3 more: use filters", ""),
    ]
    assert [(line.text, line.style) for line in resource_lines(INCIDENT_TABLE, [], 80, wide=False)] == [
        ("no incidents", "ok")
    ]
