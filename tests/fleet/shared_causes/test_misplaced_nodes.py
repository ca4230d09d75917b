"""Labels that name another place, and parts of a domain that are too thinly affected to be degraded themselves."""

from __future__ import annotations

import pytest

from tests.fleet.shared_causes.scene import BEFORE, HOUR, MINUTE, History, fabric, rows

CHECK = "gpu-thermal-slowdown"


@pytest.mark.parametrize("seed", range(3))
def test_a_row_is_no_false_alarm_because_of_nodes_with_the_label_of_another_one(seed: int) -> None:
    history = History(rows(1200, 15, 20), f"misplaced {seed}")
    row = f"rack/row{seed % 4}"
    others = [node for node in range(1200) if node not in history.nodes(row)]
    history.fault("overheated", history.nodes(row), BEFORE, within=5 * MINUTE)
    history.fault("overheated", history.random.sample(others, 30), BEFORE, within=5 * MINUTE)
    outcome = history.run(BEFORE + HOUR)
    assert (outcome.domains, outcome.suppressed) == ({row}, set())


@pytest.mark.parametrize("seed", range(3))
def test_a_row_with_a_fifth_of_each_rack_is_named(seed: int) -> None:
    history = History(rows(800, 4, 40), f"thin {seed}")
    row = f"rack/row{seed}"
    racks = [history.topology.domains[f"{row}/r{number}"] for number in range(4 * seed, 4 * seed + 4)]
    for rack in racks:
        history.fault("overheated", history.random.sample(rack, 8), BEFORE, within=20 * MINUTE)
    outcome = history.run(BEFORE + HOUR)
    assert (outcome.domains, outcome.suppressed) == ({row}, set())


@pytest.mark.parametrize("seed", range(3))
def test_a_false_alarm_that_fires_most_in_two_rows_is_suppressed(seed: int) -> None:
    """Of four rows, two have two thirds of the nodes: that is more than half, and no proof of shared hardware."""
    history = History(rows(1200, 15, 20), f"uneven {seed}")
    first, second = (history.nodes(f"rack/row{number}") for number in (0, 1))
    others = [node for node in range(1200) if node not in {*first, *second}]
    history.fault("overheated", history.random.sample([*first, *second], 60), BEFORE, within=HOUR)
    history.fault("overheated", history.random.sample(others, 30), BEFORE, within=HOUR)
    outcome = history.run(BEFORE + 1.5 * HOUR)
    assert outcome.suppressed == {CHECK}
    assert outcome.domains == set()


@pytest.mark.parametrize("seed", range(8))
def test_a_false_alarm_on_a_tenth_of_a_small_fleet_names_no_pod(seed: int) -> None:
    """A pod without an affected leaf has some of these nodes: no more than its part of the fleet explains."""
    history = History(fabric(128, 32, 8), f"false alarm on a tenth {seed}")
    affected = history.random.sample(range(128), 12)
    history.fault("port-down", affected, BEFORE, within=24.0)
    outcome = history.run(BEFORE + 10 * MINUTE)
    assert {domain for domain in outcome.domains if "leaf" not in domain} == set()
