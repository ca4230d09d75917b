from __future__ import annotations

from nodeguard.model.check import Compare, Increase
from nodeguard.model.finding import CounterTotal, DataStatus, Health, PassedFamily, ReadFailure
from nodeguard.model.observation import Observation
from tests.judge.judged_node import JudgedNode, check, observe, unread

HOT = Compare("hot", "is", value=True)
GPUS = [f"gpu/0000:{bus:02x}:00" for bus in range(4)]


def test_verdict_has_the_worst_health_of_all_findings() -> None:
    node = JudgedNode(
        check(HOT, "a", health=Health.WARNING),
        check(Compare("lost", "is", value=True), "b", health=Health.FATAL),
    )
    assert node.round(0).health is Health.OK
    assert node.round(10, observe(hot=True, lost=False)).health is Health.WARNING
    verdict = node.round(20, observe(hot=True, lost=True))
    assert (verdict.health, [finding.check for finding in verdict.findings]) == (Health.FATAL, ["b", "a"])


def test_verdict_counts_only_checks_with_data_as_evaluated() -> None:
    assert JudgedNode(check(HOT)).round(0, observe(other=1)).evaluated == 0
    assert JudgedNode(check(HOT)).round(0, observe(hot=False)).evaluated == 1


def test_merged_symptom_is_not_a_separate_finding() -> None:
    node = JudgedNode(
        check(HOT, "cause"), check(Compare("slow", "is", value=True), "symptom", symptom_of=("cause",))
    )
    assert [finding.check for finding in node.round(0, observe(hot=True, slow=True)).findings] == ["cause"]
    assert [finding.check for finding in node.round(10, observe(hot=False, slow=True)).findings] == [
        "symptom"
    ]


def test_fault_of_a_disk_explains_symptoms_of_its_file_systems() -> None:
    node = JudgedNode(
        check(Compare("lost", "is", value=True), "cause", targets=("disk",)),
        check(Compare("fs.error", "is_not", ""), "symptom", targets=("fs",), symptom_of=("cause",)),
    )
    error = {"fs__error": "EIO", "fs__disk": "disk/nvme1"}
    lost = [
        finding.check
        for finding in node.round(0, observe("disk/nvme1", lost=True), observe("fs:/raid", **error)).findings
    ]
    assert lost == ["cause"]
    other = node.round(
        10, observe("disk/nvme1", lost=True), observe("fs:/raid", **{**error, "fs__disk": "disk/nvme2"})
    )
    assert [finding.check for finding in other.findings] == ["cause", "symptom"]


def test_links_that_cannot_be_read_are_in_the_order_of_their_numbers() -> None:
    node = JudgedNode(check(HOT, targets=("nvlink",)))
    links = [f"{GPUS[0]}/nvlink/{link}" for link in (10, 2, 1)]
    verdict = node.round(0, *(unread(link, "hot") for link in links))
    assert [failure.targets for failure in verdict.read_failures] == [tuple(reversed(links))]


def test_unread_signals_are_grouped_by_reason() -> None:
    node = JudgedNode(
        check(HOT, targets=("gpu",)), check(Compare("slow", "is", value=True), "b", targets=("gpu",))
    )
    verdict = node.round(
        0,
        *(
            Observation("memory", gpu, unreadable={"hot": "refused", "slow": "refused", "unwanted": "x"})
            for gpu in GPUS[:2]
        ),
        unread(GPUS[2], "hot", "timed out"),
    )
    assert verdict.read_failures == (
        ReadFailure("memory", tuple(GPUS[:2]), "hot, slow", "refused"),
        ReadFailure("memory", (GPUS[2],), "hot", "timed out"),
    )


def test_failed_source_is_reported_once() -> None:
    node = JudgedNode(check(HOT), check(Compare("slow", "is", value=True), "b"))
    node.round(0, observe(hot=False, slow=False))
    verdict = node.round(10, Observation("memory", "node", "failed", detail="no such file"))
    assert verdict.read_failures == (ReadFailure("memory", ("node",), "memory", "no such file"),)
    assert verdict.data_status is DataStatus.UNKNOWN


def test_absent_source_is_not_reported_as_unread() -> None:
    verdict = JudgedNode(check(HOT)).round(0, Observation("nvml", "node", "absent", detail="no library"))
    assert (verdict.read_failures, verdict.data_status) == ((), DataStatus.FRESH)


def test_passing_checks_are_counted_by_family_and_kind() -> None:
    node = JudgedNode(
        check(HOT, "a", targets=("gpu", "node")),
        check(HOT, "b", targets=("gpu",)),
        check(HOT, "c", family="other"),
    )
    rows = [observe(gpu, source="nvml", hot=gpu == GPUS[3]) for gpu in GPUS[1:]]
    verdict = node.round(0, observe(GPUS[0], hot=False), *rows, observe(hot=False))
    # The first was not read by what reads GPUs, the last is hot.
    assert verdict.passed == (PassedFamily("family", 2, {"gpu": 2}), PassedFamily("other", 1, {"node": 1}))


def test_counter_read_once_shows_its_total_unless_it_is_zero() -> None:
    node = JudgedNode(check(Increase("n", 1, 60), targets=("gpu",)))
    first = node.round(0, observe(GPUS[0], n=0), observe(GPUS[1], n=7))
    assert first.counter_totals == (CounterTotal("n", GPUS[1], 7),)
    assert node.round(10, observe(GPUS[0], n=0), observe(GPUS[1], n=7)).counter_totals == ()


def test_passing_checks_list_their_targets() -> None:
    node = JudgedNode(
        check(HOT, "a", targets=("gpu",), family="heat"),
        check(Compare("slow", "is", value=True), "b", targets=("gpu",), family="heat"),
    )
    verdict = node.round(
        0,
        Observation("nvml", GPUS[0], signals={"hot": False, "slow": False}),
        Observation("nvml", GPUS[1], signals={"hot": True, "slow": False}),
        Observation("nvml", GPUS[2], signals={"slow": False}, unreadable={"hot": "refused"}),
    )
    proven = {
        (check, target) for passed in verdict.passing for check in passed.checks for target in passed.targets
    }
    assert proven == {("a", GPUS[0]), ("b", GPUS[0]), ("b", GPUS[1]), ("b", GPUS[2])}
