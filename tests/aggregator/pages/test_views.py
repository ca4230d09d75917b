"""What the pages behind the first one show of real decisions."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from urllib.parse import parse_qsl

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.pages.html import EMPTY
from nodeguard.aggregator.pages.page_query import NodeQuery, node_query
from nodeguard.aggregator.pages.views import (
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
from nodeguard.fleet_api.text.check import explanation_view
from nodeguard.fleet_api.view import Field, Row
from nodeguard.model.finding import Action
from nodeguard.model.policy import Pool
from tests.aggregator.pages.page_text import faulty, hrefs, inputs, links, parsed, text
from tests.aggregator.pages.scenes import (
    CATALOGUE,
    ENFORCED,
    HOSTILE,
    REMEDIES,
    gpu_name,
    hostile_fleet,
    plain_fleet,
)
from tests.fleet.scene import finding


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


@pytest.mark.parametrize("query", [NodeQuery("", "fatal", "any"), NodeQuery("01", "ok", "", 1, "marked")])
def test_the_number_on_a_filter_is_that_of_the_nodes_it_lists(query: NodeQuery) -> None:
    page = nodes_page(faulty(), query)
    filters = re.findall(r'<a href="/nodes\?([^"]*)"[^>]*>([0-9]+) ', page.content)
    assert len(filters) >= 4
    for parameters, number in filters:
        selected = node_query(dict(parse_qsl(unescape(parameters))))
        assert text(nodes_page(faulty(), selected)).strip().startswith(f"{number} node")


def test_the_list_of_nodes_names_their_pool_where_there_are_pools() -> None:
    assert " GPUs Notes gpu-h100-0016 " in text(nodes_page(faulty(), NodeQuery()))
    fleet = plain_fleet(2, replace(ENFORCED, pools=(Pool("research", {"team": "research"}),)))
    fleet.change(1, labels={"team": "research"})
    shown = text(nodes_page(inputs(fleet), NodeQuery()))
    assert " GPUs Pool Notes gpu-h100-0000 OK 8 gpu-h100-0001 OK 8 research" in shown


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
    [name] = fleet.planner.tracker.recorded.by_uid["uid-66"]
    shown = text(incident_page(fleet, name))
    assert "message GPU 0000:3b:00 fell off the bus (Xid 79); 7 of 8 GPUs are left state withheld" in shown
    assert shown.count("fell off the bus (Xid 79)") == 1
    assert "withheld, the mark is not applied: the node is on hold" in shown
    assert "action Reboot the node. If the GPU is lost again, power-cycle the node" in shown
    assert shown.lower().count("reboot the node") == 1
    assert incident_page(fleet, "no-such-incident") is None


def test_the_page_of_an_incident_that_is_over_recommends_nothing() -> None:
    fleet = plain_fleet(8)
    fleet.report(3, finding("gpu-lost", action=Action.REBOOT_NODE))
    fleet.carry_out()
    fleet.report(3)
    fleet.carry_out()
    fleet.after(3600.0)
    fleet.carry_out()
    [incident] = fleet.planner.all_incidents()
    shown = text(incident_page(inputs(fleet), incident.name))
    assert "state resolved" in shown
    assert "action" not in shown


def test_the_pages_of_a_node_and_of_its_incident_have_the_commands_of_the_check() -> None:
    fleet = plain_fleet(8)
    fleet.report(3, finding("clock-unsynchronized", "node", action=Action.RESTART_SERVICE))
    fleet.carry_out()
    [incident] = fleet.planner.all_incidents()
    for page in (node_page(inputs(fleet), gpu_name(3), EMPTY), incident_page(inputs(fleet), incident.name)):
        assert "chroot /host systemctl restart chronyd" in text(page)


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
    [name] = fleet.planner.tracker.recorded.by_uid["uid-66"]
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
    assert "quarantined, no new work: gpu-lost" in words
    assert words.count("gpu-lost - GPU 0000:3b:00") == 1
    assert words.count("fell off the bus (Xid 79)") == 1
    assert "NVRM: Xid (PCI:0000:3b:00): 79" in words
    assert "mark quarantine, set 2023-11-14 22:24:20 UTC, just now waiting for gpu-lost to pass" in words
    assert "action Reboot the node. If the GPU is lost again, power-cycle the node" in words
    assert "how # This empties all GPUs of the node: kubectl drain gpu-h100-0100" in words
    assert "domains fabric/p1 , fabric/p1/r12 , power/row1" in words
    assert hrefs(page).count("/domains/fabric/p1/r12") == 1
    assert words.count("fabric/p1/r12") == 2  # The other is its budget.
    assert any(path.startswith("/incidents/gpu-h100-0100-") for path in hrefs(page))
    assert node_page(faulty(), "no-such-node", EMPTY) is None


def test_the_page_of_an_incident_of_a_domain_links_to_its_nodes() -> None:
    fleet = faulty()
    [name] = [incident.name for incident in fleet.planner.all_incidents() if incident.domain]
    page = incident_page(fleet, name)
    assert {f"/nodes/{gpu_name(number)}" for number in range(16, 22)} <= links(page)
    assert "FATAL port-down - port mlx5_0/1 of 6 nodes message the port is down nodes" in text(page)


def test_the_pages_of_domains_have_the_degraded_one_and_its_nodes() -> None:
    assert "1 domain degraded" in text(domains_page(faulty()))
    assert "fabric/p0/r2 8 6 degraded, marked" in text(domains_page(faulty()))
    shown = text(domain_page(faulty(), "fabric/p0/r2"))
    assert "6 of 8 nodes lost a link at once" in shown
    assert "FATAL gpu-h100-0016" in shown
    assert domain_page(faulty(), "r2") is None


def test_the_faulty_nodes_of_a_domain_come_first() -> None:
    nodes = text(domain_page(faulty(), "power/row1")).partition(" Nodes ")[2]
    faults = "FATAL gpu-h100-0100 FATAL gpu-h100-0133 SUSPECT gpu-h100-0150 WARNING gpu-h100-0181"
    assert nodes.startswith(f"{faults} OK gpu-h100-0096 OK gpu-h100-0097")


def test_what_a_domain_names_is_a_link() -> None:
    page = parsed(domain_page(faulty(), "fabric/p0"))
    votes, _, inside = "".join(page.words).partition("fabric/p0/r2: 6 of 8 nodes")
    assert "port-down on port mlx5_0/1" in votes
    assert inside
    paths = hrefs(domain_page(faulty(), "fabric/p0"))
    # The nodes that show the fault, the domains inside, then all nodes.
    faults = [f"/nodes/{gpu_name(number)}" for number in range(16, 22)]
    domains = ["/domains/fabric/p0/r2", *(f"/domains/fabric/p0/r{rack}" for rack in (0, 1, 3, 4, 5, 6, 7))]
    assert paths[: len(faults) + len(domains)] == [*faults, *domains]
    assert "/domains/fabric/p0" in links(domain_page(faulty(), "fabric/p0/r2"))


@pytest.mark.parametrize(
    "page", ["fleet", "incidents", "incident", "check", "nodes", "node", "unread", "domains", "domain"]
)
def test_no_text_from_outside_becomes_html(page: str) -> None:
    fleet = inputs(hostile_fleet())
    [name] = fleet.planner.tracker.recorded.by_uid["uid-3"]
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
