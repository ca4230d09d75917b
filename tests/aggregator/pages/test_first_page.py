"""What the first page shows of real decisions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.pages.page_query import NodeQuery
from nodeguard.aggregator.pages.views import PageContent, fleet_page, nodes_page
from nodeguard.fleet_api.service_state import Obstacle
from nodeguard.fleet_api.status import fleet_status
from nodeguard.fleet_api.text.status import headline, status_view
from nodeguard.model.job import NodeJob
from nodeguard.model.policy import InjectionPolicy, SoakPeriod
from tests.aggregator.pages import scenes
from tests.aggregator.pages.page_text import faulty, hrefs, inputs, links, parsed, text
from tests.aggregator.pages.scenes import gpu_name, large_fleet, plain_fleet, service_state
from tests.cli.fleet_output import facts, look
from tests.fleet.leaves import down, wait
from tests.fleet.scene import Fleet as Nodes
from tests.fleet.scene import finding


def test_the_headline_is_that_of_nodeguard_status() -> None:
    fleet = faulty()
    line = headline(fleet_status(fleet.planner, fleet.service, fleet.now))
    shown = fleet_page(fleet, "")
    assert shown.title == f"FATAL {line.text}".rstrip(".")
    assert line.text in shown.content


def test_the_reason_why_nothing_is_written_is_above_the_headline() -> None:
    fleet = faulty()
    obstacle = Obstacle("api-unreachable", "the API server has not answered", fleet.now.mono - 43.0)
    service = replace(fleet.service, leader="", is_leader=False, obstacle=obstacle)
    view, reason = (
        fleet_page(fleet._replace(service=service), ""),
        "nothing is written, for 43 s: the API server",
    )
    assert text(view).strip().startswith(f"BLOCKED {reason} has not answered. FATAL")
    assert view.title == f"BLOCKED {reason} has not answered"


def test_the_first_page_answers_what_where_since_when_what_nodeguard_did_and_what_to_do() -> None:
    shown = text(fleet_page(faulty(), ""))
    assert "gpu-lost 6 incidents GPU 0000:3b:00 fell off the bus (Xid 79)" in shown
    assert "5 quarantined : gpu-h100-0100 gpu-h100-0133 gpu-h100-0201 and 2 more" in shown
    assert "28 min 45 s 21:55 UTC" in shown
    assert "1 withheld (the node is on hold: alice debugs NCCL, until Friday) : gpu-h100-0066 5 quar" in shown
    assert "Reboot the node explain gpu-lost" in shown
    assert "p0 8/64 r2 degraded marked F F F F F F r1 W W p1 2/64 r8 F r12 F" in shown


def test_a_degraded_pod_is_named_once_on_the_map() -> None:
    fleet = plain_fleet(2048)
    for number in range(64, 128):
        fleet.report(number, down())
    wait(fleet, 60.0)
    shown = text(fleet_page(inputs(fleet), ""))
    map_text = shown.partition(" Map ")[2].partition("Marks, agents and policy")[0]
    assert "p1 64/64 degraded marked r8 F F F F F F F F r9 F" in map_text
    assert map_text.count("degraded") == 1


def test_an_injected_fault_is_in_the_headline() -> None:
    fleet = plain_fleet(2, replace(scenes.ENFORCED, injection=InjectionPolicy(allowed=True)))
    fleet.report(0, injected=(finding("gpu-lost"),))
    fleet.carry_out()
    head = text(fleet_page(inputs(fleet), "")).partition("Worst incidents")[0]
    assert "2 nodes: all checks passed; 1 injected fault" in head
    assert "injected for a rehearsal: " in head


def test_similar_incidents_of_domains_are_counted_and_linked_as_domains() -> None:
    fleet = plain_fleet(320)
    for number in (*range(16, 24), *range(80, 88)):
        fleet.report(number, down())
    wait(fleet, 60.0)
    shown = fleet_page(inputs(fleet), "")
    assert "link-down 2 incidents" in text(shown)
    assert "2 domains" in text(shown)
    assert {"/domains/fabric/p0/r2", "/domains/fabric/p1/r10"} < links(shown)
    assert not [path for path in links(shown) if path.startswith("/nodes/fabric")]
    lines = look(status_view(fleet_status(fleet.planner, service_state(fleet), fleet.now)))
    assert "2 domains: 2 marked: fabric/p0/r2, fabric/p1/r10" in lines


def test_a_faulty_node_names_the_jobs_that_it_hits() -> None:
    fleet = plain_fleet(64)
    fleet.planner.state.update_jobs("uid-3", (NodeJob("train/llama-7"),))
    fleet.report(3, finding("gpu-lost"))
    wait(fleet, 10.0)
    assert f"{gpu_name(3)} GPU 0000:3b:00 jobs: train/llama-7 " in text(fleet_page(inputs(fleet), ""))


def test_several_faulty_nodes_name_the_jobs_that_they_hit() -> None:
    fleet = plain_fleet(64)
    for number, job in ((3, "train/llama-7"), (4, "train/qwen-2")):
        fleet.planner.state.update_jobs(f"uid-{number}", (NodeJob(job),))
        fleet.report(number, finding("gpu-lost"))
    wait(fleet, 10.0)
    shown = text(fleet_page(inputs(fleet), ""))
    assert "2 nodes jobs: train/llama-7, train/qwen-2 " in shown


def test_a_degraded_domain_names_the_jobs_that_it_hits() -> None:
    fleet = scenes.faulty_fleet()
    fleet.planner.state.update_jobs("uid-16", (NodeJob("train/llama-7"),))
    fleet.after(5.0)
    fleet.plan()
    shown = text(fleet_page(inputs(fleet), ""))
    assert "fabric/p0/r2 jobs: train/llama-7 10 min" in shown
    lines = look(status_view(fleet_status(fleet.planner, service_state(fleet), fleet.now)))
    assert "         jobs: train/llama-7\n" in lines


def test_observe_mode_is_shown_below_the_headline() -> None:
    shown = text(fleet_page(inputs(scenes.observed_fleet()), ""))
    assert (
        "OBSERVE MODE - no new mark is set. 12 nodes would be quarantined"
        in shown.partition("Worst incidents")[0]
    )


def test_the_first_minute_is_not_shown_as_healthy() -> None:
    shown = text(fleet_page(inputs(scenes.starting_fleet()), ""))
    assert "37 of 320 reporting, 283 without a report" in shown.partition("Worst incidents")[0]
    assert "No incidents. The health of 283 nodes is unknown." in shown
    assert shown.count("37 of 320 reporting") == 1


def test_the_line_of_faulty_nodes_that_take_work_links_to_them() -> None:
    page = fleet_page(faulty(), "")
    head = text(page).partition("Worst incidents")[0]
    assert "in service 1 faulty node: the node is on hold" in head
    assert "/nodes?work=faulty" in links(page)
    listed = nodes_page(faulty(), NodeQuery(work="faulty"))
    assert [path for path in hrefs(listed) if path.startswith("/nodes/")] == [f"/nodes/{gpu_name(66)}"]
    assert "Work: all 304 working 1 of unknown health 1 faulty in service 14 marked by nodeguard" in text(
        listed
    )


def test_each_reason_of_a_withheld_mark_is_on_the_page_once() -> None:
    """The incidents have it: the field of `nodeguard status` would repeat it."""
    shown = text(fleet_page(faulty(), ""))
    assert shown.count("alice debugs NCCL, until Friday") == 1
    assert "1 mark of 1 node" not in shown


def test_the_capacity_is_a_bar_with_links_to_the_nodes_of_each_part() -> None:
    page = fleet_page(faulty(), "")
    head = text(page).partition("Worst incidents")[0]
    assert (
        "304 working 1 of unknown health 1 faulty in service 14 marked by nodeguard GPUs: 2520 of 2560 in service Budgets"
        in head
    )
    assert {"/nodes?work=working", "/nodes?work=faulty", "/nodes?work=marked"} <= links(page)
    assert "/nodes?work=cordoned" not in links(page)
    titles = {attributes.get("title") for _, attributes in parsed(page).elements}
    assert "nodeguard keeps new work away by a taint; without a cluster it advises that" in titles
    bar, *budgets = svg_bars(page)
    assert [name for name, _ in bar] == ["work working", "work unknown", "work faulty", "work marked"]
    assert 999.0 <= sum(width for _, width in bar) <= 1001.0
    # One node of 320 is visible.
    assert bar[1][1] >= 5.0
    assert "fleet 6 of 16" in head
    assert budgets[0] == [("ok", 375.0)]
    assert budgets[1] == [("warning", 500.0)]


def svg_bars(page: PageContent) -> list[list[tuple[str, float]]]:
    """Return the parts of each bar: class and width, of 1000."""
    bars: list[list[tuple[str, float]]] = []
    for tag, attributes in parsed(page).elements:
        if tag == "svg":
            bars.append([])
        elif tag == "rect":
            bars[-1].append((attributes["class"] or "", float(attributes["width"] or 0)))
    return bars


def test_the_map_of_a_fleet_with_many_faults_is_folded() -> None:
    page = fleet_page(inputs(large_fleet(400)), "")
    assert "110 more domains with 372 nodes that are not ok" in text(page)
    assert '<a href="/nodes">and 77 more with a fault</a>' in page.content
    assert "and 9 more half used: nodeguard get budgets" in text(page)
    assert any(tag == "details" and attributes["id"] == "faulty" for tag, attributes in parsed(page).elements)


def test_an_empty_fleet_has_a_page() -> None:
    shown = text(fleet_page(inputs(Nodes(0)), ""))
    assert "no agent has reported yet." in shown
    assert "There are no nodes." in shown


def cells(view: PageContent) -> dict[str, dict[str, str | None]]:
    return {
        (attributes["href"] or "").removeprefix("/nodes/"): attributes
        for tag, attributes in parsed(view).elements
        if tag == "a" and (attributes.get("class") or "").startswith("cell ")
    }


def test_the_map_has_a_cell_for_every_node_that_is_not_ok_and_each_is_a_tab_stop() -> None:
    shown = cells(fleet_page(faulty(), ""))
    assert len(shown) == 17
    fatal = shown[gpu_name(100)]
    assert fatal["class"] == "cell fatal marked"
    assert (fatal["title"] or "").startswith(
        "gpu-h100-0100: fatal, marked quarantine; GPU 0000:3b:00 fell off"
    )
    assert shown[gpu_name(66)]["class"] == "cell fatal"
    assert "1 mark withheld" in (shown[gpu_name(66)]["title"] or "")
    assert shown[gpu_name(255)]["class"] == "cell unknown"
    assert "stale" in (shown[gpu_name(255)]["title"] or "")
    assert not any("tabindex" in attributes for attributes in shown.values())


def test_the_topology_of_the_map_can_be_chosen() -> None:
    shown = text(fleet_page(faulty(), "power")).partition("Map")[2].partition("Marks, budgets")[0]
    assert "row0 9/96 F F F F F F F W W row1 4/96 F F S W row2 3/96 F F ? row3 1/32 F" in shown
    assert "r12" not in shown


def test_a_healthy_fleet_shows_since_when_all_is_well() -> None:
    fleet = plain_fleet(16, replace(scenes.ENFORCED, soak=SoakPeriod(0.0, 0.0, 86_400.0)))
    assert "No incidents: no fault in the past 24 h." in text(fleet_page(inputs(fleet), ""))
    young = replace(service_state(fleet), started=fleet.mono - 7_200.0)
    shown = text(fleet_page(inputs(fleet)._replace(service=young), ""))
    assert "No incidents: no fault for 2 h, since this aggregator started." in shown
    for number in (3, 5):
        fleet.report(number, finding())
        fleet.after(10.0)
        fleet.carry_out()
        fleet.report(number)
        fleet.after(60.0)
        fleet.carry_out()
    fleet.after(7_200.0)
    fleet.carry_out()
    calm = f"no fault for 2 h; the latest: gpu-lost on {gpu_name(5)}"
    assert f"No incidents: {calm}." in text(fleet_page(inputs(fleet), ""))
    status = status_view(fleet_status(fleet.planner, service_state(fleet), fleet.now))
    assert facts(status)["incidents"] == f"2 resolved; {calm}"


def test_a_healthy_fleet_is_one_line_that_can_be_opened() -> None:
    page = fleet_page(inputs(plain_fleet(320)), "")
    assert "5 domains with 320 nodes are ok p0 64 p1 64" in text(page)
    assert "/domains/fabric/p4" in links(page)
    assert cells(page) == {}


@pytest.mark.parametrize("faults", [40, 400])
def test_the_page_of_a_large_fleet_is_small(faults: int) -> None:
    """The browser's test has its height; these are its rows."""
    fleet = inputs(large_fleet(faults))
    for topology in ("fabric", "power", "driver", "pool"):
        page = fleet_page(fleet, topology)
        shown = parsed(page)
        assert len(page.content.encode()) <= 150_000
        assert sum(tag == "tr" for tag, _ in shown.elements) <= 6
        assert sum(attributes.get("class") == "group" for _, attributes in shown.elements) <= 40
        assert len(cells(page)) <= 240
    assert "78 domains with 4940 nodes are ok" in text(fleet_page(fleet, "fabric")) or faults > 40
    assert ("and 77 more with a fault" in text(fleet_page(fleet, "fabric"))) == (faults > 40)
