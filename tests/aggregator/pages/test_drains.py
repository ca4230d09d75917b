"""What the first page shows of drains."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.aggregator.pages.change_feed import fingerprint
from nodeguard.aggregator.pages.views import Fleet, fleet_page
from nodeguard.fleet.act.drain_report import DrainReport, DrainState
from nodeguard.fleet_api.text.wording import api_time
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.instant import rfc3339
from nodeguard.model.pod import PodKey
from tests.aggregator.pages.page_text import faulty, links, text
from tests.aggregator.pages.scenes import HOSTILE, gpu_name

GPU = "gpu/0000:3b:00"


def drain(number: int, state: DrainState, reason: str = "", name: str = "train-0") -> DrainReport:
    at, pods = faulty().now.wall - 120.0, (PodKey("team-a", name, "uid-7"),)
    return DrainReport(gpu_name(number), f"uid-{number}", GPU, ("gpu-lost",), at, state, reason, pods)


def failed(number: int, message: str = "refused") -> NodeAction:
    pods = (PodKey("team-a", "train-0", "uid-7"), PodKey("team-a", "train-1", "uid-8"))
    at = int(faulty().now.wall) - 600
    return NodeAction(
        ActionKind.DRAIN, gpu_name(number), f"uid-{number}", "quarantine", at, pods=pods, state=ActionState.FAILED,
        carried_out=1, message=message, changed_at=at + 300,
    )  # fmt: skip


def drained(drains: list[DrainReport], actions: list[NodeAction]) -> Fleet:
    fleet = faulty()
    return fleet._replace(service=replace(fleet.service, drains=tuple(drains), actions=tuple(actions)))


def test_a_page_without_drains_has_no_section_of_them() -> None:
    assert " Drains " not in text(fleet_page(faulty(), ""))


def test_drains_are_listed_those_that_need_a_person_first() -> None:
    running = replace(drain(133, DrainState.RUNNING, "it ends"), remaining=("uid-7",))
    waits = drain(201, DrainState.WAITS, "a budget")
    dry = replace(drain(242, DrainState.WOULD_DRAIN), costs=("Job team-a/train would fail",))
    page = fleet_page(drained([running, waits, dry], [failed(100)]), "")
    assert text(page).partition(" Drains ")[2].partition(" Map ")[0].strip() == (
        "Node State Since Pods Reason "
        "gpu-h100-0100 failed 5 min 1 of 2 pods gone refused "
        "gpu-h100-0201 GPU 0000:3b:00 waits 2 min 1 pod (team-a/train-0) a budget "
        "gpu-h100-0133 GPU 0000:3b:00 evicts 2 min 1 pod (team-a/train-0); 1 not gone it ends "
        "gpu-h100-0242 GPU 0000:3b:00 dry run 2 min 1 pod (team-a/train-0) the policy only observes; Job team-a/train would fail"
    )
    assert f"/nodes/{gpu_name(100)}" in links(page)
    # The facts above and below do not repeat it.
    assert text(page).count("refused") == 1
    assert text(page).count("Job team-a/train would fail") == 1


def test_a_drain_with_notice_shows_its_time() -> None:
    at = faulty().now.wall + 60.0
    announced = replace(drain(133, DrainState.ANNOUNCED), evict_at=at, costs=("Job team-a/train would fail",))
    page = text(fleet_page(drained([announced], []), ""))
    assert (
        f"announced 2 min 1 pod (team-a/train-0) it evicts them at {api_time(rfc3339(at))} or later; Job team-a/train would"
        in page
    )


def test_further_drains_are_counted() -> None:
    nodes = (100, 133, 201, 242, 290, 66)
    waiting = [drain(number, DrainState.WAITS, "a budget") for number in nodes]
    assert "and 1 more drain: nodeguard get actions --kind drain" in text(
        fleet_page(drained(waiting, []), "")
    )


def test_no_text_of_a_drain_becomes_html() -> None:
    page = fleet_page(drained([drain(133, DrainState.WAITS, HOSTILE, HOSTILE)], [failed(100, HOSTILE)]), "")
    assert "<script" not in page.content
    assert "<img" not in page.content
    assert text(page).count("<script>") == 3


def test_open_pages_show_a_change_of_a_drain() -> None:
    def number(fleet: Fleet) -> int:
        return fingerprint(fleet.planner, fleet.service, fleet.now)

    running = drain(133, DrainState.RUNNING)
    numbers = [
        number(drained(drains, actions))
        for drains, actions in (
            ([], []),
            ([running], []),
            ([replace(running, reason="it ends")], []),
            ([], [failed(133)]),
        )
    ]
    assert len(set(numbers)) == 4
    later = drained([running], [])
    assert number(later._replace(now=replace(later.now, wall=later.now.wall + 60.0))) == numbers[1]
