"""Duration and size of the status page for 7,500 nodes, beside the encoding of 7,500 small objects as JSON.

`python bench/page.py`. Names have 24 characters. 400 faults; medians of some runs. A look for a
change runs every two seconds while a page is open.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.plan import row, timed
from nodeguard.aggregator.pages.change_feed import fingerprint
from nodeguard.aggregator.pages.layout import StaticFiles, document
from nodeguard.aggregator.pages.views import Fleet as Inputs
from nodeguard.aggregator.pages.views import fleet_page
from tests.aggregator.pages.scenes import CATALOGUE, ENFORCED, REMEDIES, service_state
from tests.fleet.scene import CHECKS, Fleet, finding

NODES = 7500
RUNS = 7
FAULTS = 400


def main() -> None:
    """Print the figures."""
    objects = [
        {"node": f"node-{number}", "uid": f"uid-{number}", "gpus": 8, "ok": True} for number in range(NODES)
    ]
    row("reference: json of 7,500 objects", [timed(lambda: json.dumps(objects)) for _ in range(RUNS)])
    fleet, static = large_fleet(), StaticFiles()
    service = service_state(fleet)

    def page() -> bytes:
        inputs = Inputs(fleet.planner, service, fleet.now, REMEDIES, CATALOGUE)
        return document(fleet_page(inputs, ""), "/", "2026-11-22 03:12:00 UTC", static)

    row("the page of the fleet", [timed(page) for _ in range(RUNS)])
    row(
        "a look for a change",
        [timed(lambda: fingerprint(fleet.planner, service, fleet.now)) for _ in range(RUNS)],
    )
    body = page()
    sizes = len(body) / 1000, len(gzip.compress(body)) / 1000
    print(f"{'size of the page':44}{sizes[0]:9.0f} kB   {sizes[1]:9.0f} kB compressed")
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.2f}")


def large_fleet() -> Fleet:
    """Return racks of eight nodes; of every hundred nodes some have a fault."""
    fleet = Fleet(0, ENFORCED)
    for number in range(NODES):
        labels = {"pod": f"p{number // 512}", "rack": f"r{number // 8}", "row": f"row{number // 96}"}
        fleet.add(number, name=f"gpu-h100-eu-west-4a-{number:04d}", labels=labels)
    for number in range(FAULTS):
        fleet.report(number * NODES // FAULTS, finding(CHECKS[number % len(CHECKS)]))
    fleet.planner.tick(fleet.now)
    fleet.carry_out()
    return fleet


if __name__ == "__main__":
    main()
