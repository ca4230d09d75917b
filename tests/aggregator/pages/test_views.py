"""What the pages show of real decisions."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.pages.html import EMPTY
from nodeguard.aggregator.pages.page_query import NodeQuery
from nodeguard.aggregator.pages.views import (
    Fleet,
    PageContent,
    check_page,
    domain_page,
    domains_page,
    fleet_page,
    incident_page,
    incidents_page,
    node_page,
    nodes_page,
)
from nodeguard.fleet_api.service_state import Obstacle
from nodeguard.fleet_api.status import fleet_status
from nodeguard.fleet_api.text.check import explanation_view
from nodeguard.fleet_api.text.status import headline, status_view
from nodeguard.fleet_api.view import Field, Row
from nodeguard.model.finding import Action
from nodeguard.model.job import NodeJob
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION
from nodeguard.model.policy import InjectionPolicy, SoakPeriod
from nodeguard.wire.report import Inventory, ReportedEvidence, UnreadableTargets
from tests.aggregator.pages import scenes
from tests.aggregator.pages.scenes import CATALOGUE, REMEDIES, gpu_name, plain_fleet, service_state
from tests.cli.fleet_output import facts, look
from tests.fleet.scene import Fleet as Nodes
from tests.fleet.scene import finding


def inputs(fleet: Nodes) -> Fleet:
    return Fleet(fleet.planner, service_state(fleet), fleet.now, REMEDIES, CATALOGUE)


@cache
def faulty() -> Fleet:
    return inputs(scenes.faulty_fleet())


class Text(HTMLParser):
    """The text of a page in order, and its links and elements."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def parsed(view: PageContent | None) -> Text:
    assert view is not None
    text = Text()
    text.feed(view.content)
    return text


def text(view: PageContent | None) -> str:
    return re.sub(r"\s+", " ", " ".join(parsed(view).words))


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
    assert "23 min 55 s 22:00 UTC" in shown
    assert "1 withheld (hold on the node: alice debugs NCCL, until Friday) : gpu-h100-0066 5 quar" in shown
    assert "Reboot the node explain gpu-lost" in shown
    assert "p0 8/64 r2 degraded marked F F F F F F r1 W W p1 2/64 r8 F r12 F" in shown


def test_an_injected_fault_is_in_the_headline() -> None:
    fleet = plain_fleet(2, replace(scenes.ENFORCED, injection=InjectionPolicy(allowed=True)))
    fleet.report(0, injected=(finding("gpu-lost"),))
    fleet.carry_out()
    head = text(fleet_page(inputs(fleet), "")).partition("Worst incidents")[0]
    assert "2 nodes: all checks passed; 1 injected fault" in head
    assert "injected for a rehearsal: " in head


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


def test_the_line_of_faulty_nodes_that_take_work_links_to_them() -> None:
    page = fleet_page(faulty(), "")
    head = text(page).partition("Worst incidents")[0]
    assert "in service 1 node takes work though faulty: the node is on hold" in head
    assert "/nodes?work=faulty" in links(page)
    listed = nodes_page(faulty(), NodeQuery(work="faulty"))
    assert [path for path in hrefs(listed) if path.startswith("/nodes/")] == [f"/nodes/{gpu_name(66)}"]
    assert "Work: all 305 working 1 faulty 14 marked" in text(listed)


def test_each_reason_of_a_withheld_mark_is_on_the_page_once() -> None:
    """The incidents have it: the field of `nodeguard status` would repeat it."""
    shown = text(fleet_page(faulty(), ""))
    assert shown.count("alice debugs NCCL, until Friday") == 1
    assert "1 mark of 1 node" not in shown


def test_the_capacity_is_a_bar_with_links_to_the_nodes_of_each_part() -> None:
    page = fleet_page(faulty(), "")
    head = text(page).partition("Worst incidents")[0]
    assert "305 working 1 faulty in service 14 marked by nodeguard 0 cordoned by others Budgets" in head
    assert {"/nodes?work=working", "/nodes?work=faulty", "/nodes?work=marked"} <= links(page)
    assert "/nodes?work=cordoned" not in links(page)
    bar, *budgets = svg_bars(page)
    assert [name for name, _ in bar] == ["work working", "work faulty", "work marked"]
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
    assert "104 more domains with 348 nodes that are not ok" in text(page)
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


def large_fleet(faults: int) -> Nodes:
    """7,500 nodes with faults of four checks, each in another rack."""
    fleet, size = plain_fleet(7500), 7500
    for number in range(faults):
        check = ("gpu-lost", "port-down", "gpu-ecc", "gpu-hot")[number % 4]
        fleet.report(number * size // faults, finding(check, message=f"message of {check}"))
    for _ in range(5):
        fleet.after(10.0)
        fleet.carry_out()
    return fleet


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


def test_incidents_of_a_check_or_a_state_are_listed() -> None:
    shown = text(incidents_page(faulty(), "gpu-lost", ""))
    assert shown.count("fell off the bus") == 6
    assert shown.count(REMEDIES["gpu-lost"]) == 1
    assert "gpu-ecc" not in shown
    withheld = text(incidents_page(faulty(), "", "withheld"))
    assert withheld.count("fell off the bus") == 1
    assert "gpu-ecc" in text(incidents_page(faulty(), "", "no such state"))


def test_incidents_are_in_groups_by_check_with_the_number_in_each_state() -> None:
    page = incidents_page(faulty(), "", "")
    shown = text(page)
    assert "11 unresolved 3 open 1 withheld" in shown
    assert "gpu-lost 6 incidents" in shown
    assert "5 quarantined : gpu-h100-0100" in shown
    assert shown.count("fell off the bus") == 1
    assert {"/incidents?check=gpu-lost", "/incidents?check=gpu-lost&state=withheld"} <= links(page)
    of_check = links(incidents_page(faulty(), "gpu-lost", "withheld"))
    assert {"/incidents?check=gpu-lost", "/incidents?check=gpu-lost&state=marked"} <= of_check


def test_the_list_of_nodes_is_worst_first_and_has_filters_with_numbers() -> None:
    page = nodes_page(faulty(), NodeQuery())
    shown = text(page)
    assert "320 nodes Health: all 12 fatal 1 suspect 3 warning 1 unknown 303 ok Mark: all" in shown
    assert "1 to 50 of 320" in shown
    rows = [path for path in hrefs(page) if path.startswith("/nodes/")]
    assert rows[:2] == [f"/nodes/{gpu_name(16)}", f"/nodes/{gpu_name(17)}"]
    assert {"/nodes?health=fatal", "/nodes?mark=quarantine", "/nodes?page=2"} <= links(page)


def test_nodes_are_found_by_a_part_of_their_name_and_filters_keep_it() -> None:
    page = nodes_page(faulty(), NodeQuery("GPU-H100-010", "fatal"))
    assert [path for path in hrefs(page) if path.startswith("/nodes/")] == [f"/nodes/{gpu_name(100)}"]
    assert "1 node with 'GPU-H100-010' in the name" in text(page)
    assert "/nodes?q=GPU-H100-010&mark=quarantine" not in links(page)
    assert "/nodes?q=GPU-H100-010&health=fatal&mark=quarantine" in links(page)
    assert page.search == "GPU-H100-010"
    assert "No node matches." in text(nodes_page(faulty(), NodeQuery("none")))


def test_incidents_of_a_check_have_50_on_a_page() -> None:
    fleet = plain_fleet(120)
    for number in range(110):
        fleet.report(number, finding(message=f"message {number}."))
    fleet.carry_out()
    pages = [incidents_page(inputs(fleet), "gpu-lost", "", number) for number in (1, 2, 3, 4)]
    assert [text(page).count("message ") for page in pages] == [50, 50, 10, 0]
    assert "1 to 50 of 110" in text(pages[0])
    assert "/incidents?check=gpu-lost&page=2" in links(pages[0])
    assert {"/incidents?check=gpu-lost", "/incidents?check=gpu-lost&page=3"} <= links(pages[1])
    assert "/incidents?check=gpu-lost&page=4" not in links(pages[2])
    assert "110 incidents" in text(incidents_page(inputs(fleet), "", ""))


def test_the_page_of_an_incident_has_its_reason_and_advice() -> None:
    fleet = faulty()
    [name] = fleet.planner.tracker.incidents["uid-66"]
    shown = text(incident_page(fleet, name))
    assert "withheld, the mark is not applied: hold on the node" in shown
    assert REMEDIES["gpu-lost"] in shown
    assert incident_page(fleet, "no-such-incident") is None


def test_the_pages_of_a_node_and_of_its_incident_have_the_commands_of_the_check() -> None:
    fleet = plain_fleet(8)
    fleet.report(3, finding("clock-unsynchronized", "node", action=Action.RESTART_SERVICE))
    fleet.carry_out()
    [incident] = fleet.planner.all_incidents()
    for page in (node_page(inputs(fleet), gpu_name(3), EMPTY), incident_page(inputs(fleet), incident.name)):
        assert "chroot /host systemctl restart chronyd" in text(page)


def hrefs(view: PageContent | None) -> list[str]:
    return [attributes["href"] or "" for tag, attributes in parsed(view).elements if tag == "a"]


def links(view: PageContent | None) -> set[str]:
    return set(hrefs(view))


def row_text(row: Row) -> str:
    return row.value if isinstance(row, Field) else row.text


def test_the_page_of_a_check_has_the_text_of_explain_and_its_incidents() -> None:
    explanation = explanation_view(CATALOGUE, "gpu-lost")
    assert explanation is not None
    [section] = explanation.sections
    shown = text(check_page(faulty(), "gpu-lost"))
    assert explanation.title.startswith("gpu-lost - ")
    for paragraph in (str(section.heading), *map(row_text, section.rows)):
        assert paragraph in shown
    assert shown.count("fell off the bus") == 6
    assert check_page(faulty(), "no-such-check") is None


def test_the_page_of_a_check_that_only_the_site_has_names_the_command() -> None:
    fleet = plain_fleet(8)
    fleet.report(3, finding("site-check", "gpu/0000:3b:00"))
    fleet.after(5.0)
    fleet.plan()
    shown = text(check_page(inputs(fleet), "site-check"))
    assert "Run nodeguard explain site-check on a node that has it." in shown


def test_each_incident_and_finding_links_to_a_page_that_explains_it() -> None:
    fleet = faulty()
    [name] = fleet.planner.tracker.incidents["uid-66"]
    pages = (
        fleet_page(fleet, ""),
        incidents_page(fleet, "", ""),
        incident_page(fleet, name),
        node_page(fleet, gpu_name(100), EMPTY),
    )
    for page in pages:
        explained = {path.removeprefix("/checks/") for path in links(page) if path.startswith("/checks/")}
        assert "gpu-lost" in explained
        assert [check for check in explained if check_page(fleet, check) is None] == []


def test_the_page_of_a_node_states_a_fault_once_with_its_mark_and_what_to_do() -> None:
    page = node_page(faulty(), gpu_name(100), EMPTY)
    words = text(page)
    assert "quarantined: gpu-lost" in words
    assert words.count("gpu-lost - GPU 0000:3b:00") == 1
    assert words.count("fell off the bus (Xid 79)") == 1
    assert "NVRM: Xid (PCI:0000:3b:00): 79" in words
    assert "mark quarantine, set 2023-11-14 22:24:20 UTC, just now waiting for gpu-lost to pass" in words
    assert "action Reboot the node. If the GPU is lost again, power-cycle the node" in words
    assert "how kubectl drain gpu-h100-0100" in words
    assert "/domains/fabric/p1/r12" in links(page)
    assert any(path.startswith("/incidents/gpu-h100-0100-") for path in hrefs(page))
    assert node_page(faulty(), "no-such-node", EMPTY) is None


def test_the_pages_of_domains_have_the_degraded_one_and_its_nodes() -> None:
    assert "1 domain degraded" in text(domains_page(faulty()))
    assert "fabric/p0/r2 8 6 degraded, marked" in text(domains_page(faulty()))
    shown = text(domain_page(faulty(), "fabric/p0/r2"))
    assert "6 of 8 nodes lost a link at once" in shown
    assert "FATAL gpu-h100-0016" in shown
    assert domain_page(faulty(), "r2") is None


HOSTILE = """<script>alert(1)</script><img src=x onerror=alert(1)>"'>&"""


def hostile_fleet() -> Nodes:
    """A fleet in which every text from outside is an attack."""
    fleet = plain_fleet(24)
    labels = {"pod": HOSTILE, "rack": HOSTILE, "row": HOSTILE}
    annotations = {HOLD_ANNOTATION: HOSTILE, MAINTENANCE_ANNOTATION: HOSTILE}
    fleet.change(3, name=HOSTILE, labels=labels, annotations=annotations)
    evil = finding(
        HOSTILE, HOSTILE, component=HOSTILE, message=HOSTILE, note=HOSTILE, targets=(HOSTILE,),
        evidence=(ReportedEvidence(HOSTILE, HOSTILE),),
    )  # fmt: skip
    fleet.report(3, evil, inventory=Inventory(HOSTILE, HOSTILE, HOSTILE))
    unread = (UnreadableTargets(HOSTILE, HOSTILE, HOSTILE, (HOSTILE,)),)
    report = replace(fleet.reports["uid-4"], unreadable=unread, sequence=2)
    fleet.planner.record_report("uid-4", report, fleet.now)
    fleet.after(5.0)
    fleet.plan()
    return fleet


@pytest.mark.parametrize(
    "page", ["fleet", "incidents", "incident", "check", "nodes", "node", "unread", "domains", "domain"]
)
def test_no_text_from_outside_becomes_html(page: str) -> None:
    fleet = inputs(hostile_fleet())
    [name] = fleet.planner.tracker.incidents["uid-3"]
    views: dict[str, Callable[[], PageContent | None]] = {
        "fleet": lambda: fleet_page(fleet, HOSTILE),
        "incidents": lambda: incidents_page(fleet, HOSTILE, HOSTILE),
        "incident": lambda: incident_page(fleet, name),
        "check": lambda: check_page(fleet, HOSTILE),
        "nodes": lambda: nodes_page(fleet, NodeQuery(HOSTILE)),
        "node": lambda: node_page(fleet, HOSTILE, EMPTY),
        "unread": lambda: node_page(fleet, gpu_name(4), EMPTY),
        "domains": lambda: domains_page(fleet),
        "domain": lambda: domain_page(fleet, fleet.planner.vote_collector.domain_members.paths("uid-3")[0]),
    }
    shown = parsed(views[page]())
    assert {tag for tag, _ in shown.elements} <= {
        "a", "b", "code", "dd", "details", "div", "dl", "dt", "h1", "h2", "h3", "i", "li", "nav", "p", "rect", "section",
        "small", "span", "summary", "svg", "table", "tbody", "td", "th", "thead", "time", "tr", "ul",
    }  # fmt: skip
    assert {name for _, attributes in shown.elements for name in attributes} <= {
        "aria-current", "aria-hidden", "aria-label", "class", "data-name", "datetime", "height", "href", "id", "open",
        "preserveaspectratio", "scope", "title", "viewbox", "width", "x", "y",
    }  # fmt: skip
    # The attack is on the page, as text.
    assert page == "domains" or any("<script>" in word for word in [*shown.words, str(shown.elements)])
