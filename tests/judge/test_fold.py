from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.judge.fold import attach_symptoms, fold_findings, sort_findings, worst_health
from nodeguard.model.check import Compare
from nodeguard.model.finding import DataStatus, Finding, Health
from nodeguard.model.target import NODE
from tests.judge.judged_node import check, finding

GPUS = [f"gpu/0000:{bus:02x}:00" for bus in range(8)]
LINKS = [f"{GPUS[0]}/nvlink/{number}" for number in range(18)]
SLOTS = {"gpu": 8, "nvlink": 144, "disk": 3}

checks = st.sampled_from(["a", "b", "c", "d"])
targets = st.sampled_from(
    [
        NODE,
        *GPUS,
        *LINKS[:4],
        f"{GPUS[1]}/nvlink/0",
        "port/mlx5_0/1",
        "nvswitch/0000:c1:00",
        "fs:/raid",
        "disk/nvme1",
    ]
)
findings = st.lists(
    st.builds(finding, checks, targets, health=st.sampled_from(Health)),
    max_size=40,
    unique_by=lambda item: (item.check, item.target),
)
relations = st.dictionaries(checks, st.lists(checks, max_size=3).map(tuple))


def explain(
    findings: list[Finding], symptom_of: Mapping[str, tuple[str, ...]], targets: tuple[str, ...] = (NODE,)
) -> list[Finding]:
    """Return the findings after the merge of symptoms, with file system /raid on disk nvme1."""
    rules = {
        item.check: check(
            Compare("x", "is", 1), item.check, targets=targets, symptom_of=symptom_of.get(item.check, ())
        )
        for item in findings
    }
    return attach_symptoms(findings, rules, {"fs:/raid": "disk/nvme1"})


def names(findings: list[Finding]) -> list[tuple[str, str]]:
    return sorted((item.check, item.target) for item in findings)


@pytest.mark.parametrize(
    ("symptom", "cause", "item"),
    [
        (NODE, NODE, True),
        (GPUS[0], GPUS[0], True),
        (GPUS[0], GPUS[1], False),
        (LINKS[0], GPUS[0], True),
        (LINKS[0], GPUS[1], False),
        (GPUS[0], LINKS[0], False),
        (GPUS[0], NODE, True),
        (NODE, GPUS[0], True),
        (LINKS[0], "nvswitch/0000:c1:00", True),
        ("port/mlx5_0/1", "nvswitch/0000:c1:00", False),
        ("fs:/raid", "disk/nvme1", True),
        ("fs:/home", "disk/nvme1", False),
        ("disk/nvme1", "fs:/raid", False),
    ],
)
def test_symptom_merges_into_a_cause_that_may_affect_its_target(symptom: str, cause: str, item: bool) -> None:
    result = explain([finding("symptom", symptom), finding("cause", cause)], {"symptom": ("cause",)})
    assert names(result) == [("cause", cause), *([] if item else [("symptom", symptom)])]


def test_finding_without_a_location_is_not_merged_with_another_target() -> None:
    result = [finding("symptom", NODE), finding("cause", GPUS[0])]
    assert len(explain(result, {"symptom": ("cause",)}, ("gpu", NODE))) == 2


def test_chain_of_symptoms_becomes_one_finding_with_all_evidence() -> None:
    chain = {"a": ("b",), "b": ("c",), "c": ("d",)}
    for order in ("abcd", "dcba", "badc"):
        [item] = explain([finding(name) for name in order], chain)
        assert item.check == "d"
        assert {evidence.text for evidence in item.evidence} == {f"{name} on node" for name in "abcd"}


def test_less_severe_cause_becomes_evidence_of_its_symptom() -> None:
    result = [finding("a", health=Health.FATAL), finding("b", health=Health.WARNING)]
    [item] = explain(result, {"a": ("b",)})
    assert (item.check, item.health, len(item.evidence)) == ("a", Health.FATAL, 2)
    chain = [*result, finding("c", health=Health.FATAL)]
    [item] = explain(chain, {"a": ("b",), "b": ("c",)})
    assert (item.check, len(item.evidence)) == ("c", 3)


def test_first_active_cause_is_used() -> None:
    result = explain([finding("a"), finding("b"), finding("c")], {"a": ("x", "c", "b")})
    assert {item.check: len(item.evidence) for item in result} == {"b": 1, "c": 2}


@given(result=findings, symptom_of=relations)
def test_merging_symptoms_keeps_all_evidence_and_the_worst_health(
    result: list[Finding], symptom_of: dict[str, tuple[str, ...]]
) -> None:
    """Any causes are accepted, even circular ones."""
    after = explain(result, symptom_of)
    before = {(item.check, item.target) for item in result}
    assert {(item.check, item.target) for item in after} <= before
    assert worst_health(after) == worst_health(result)
    assert bool(after) == bool(result)
    messages = {evidence.text for item in after for evidence in item.evidence}
    assert len(messages) == len(before) or any(len(item.evidence) >= 8 for item in after)


def test_links_of_one_gpu_fold_into_it() -> None:
    [item] = fold_findings([finding("down", link, message="is down") for link in reversed(LINKS)], SLOTS)
    assert (item.target, item.message) == (GPUS[0], "18 NVLinks of GPU 0000:00:00: is down")
    assert item.targets == tuple(LINKS)
    assert names(fold_findings([finding("down", LINKS[3])], SLOTS)) == [("down", LINKS[3])]


def test_links_of_every_gpu_fold_into_the_node() -> None:
    links = [f"{owner}/nvlink/{number}" for owner in GPUS for number in (0, 1)]
    [item] = fold_findings([finding("down", link, message="is down") for link in links], SLOTS)
    assert (item.target, item.message, len(item.targets)) == (NODE, "16 NVLinks: is down", 16)


@pytest.mark.parametrize(("number", "standing"), [(8, 1), (7, 7)])
def test_targets_fold_into_the_node_if_all_are_affected(number: int, standing: int) -> None:
    assert len(fold_findings([finding("lost", gpu) for gpu in GPUS[:number]], SLOTS)) == standing


@pytest.mark.parametrize("words", ["{} at 0000:0{}:00 has {} errors", "Xid {}: word {}{}"])
def test_messages_that_differ_only_in_numbers_are_one_cause(words: str) -> None:
    result = [finding("x", gpu, message=words.format(at, at + 1, at + 2)) for at, gpu in enumerate(GPUS)]
    assert len(fold_findings(result, SLOTS)) == 1


def test_findings_with_different_words_do_not_fold() -> None:
    words = ["double bit error", "row remapping failed"]
    result = [finding("x", gpu, message=f"Xid 48: {words[at % 2]}") for at, gpu in enumerate(GPUS)]
    assert len(fold_findings(result, SLOTS)) == 8
    result = [finding("x", link, message=words[at % 2]) for at, link in enumerate(LINKS)]
    assert [len(item.targets) for item in fold_findings(result, SLOTS)] == [9, 9]


def test_two_of_two_targets_do_not_fold() -> None:
    assert len(fold_findings([finding("lost", gpu) for gpu in GPUS[:2]], {"gpu": 2})) == 2


def test_folded_finding_has_the_worst_health_and_data_status() -> None:
    rows = [
        finding("lost", gpu, component=gpu, since=float(at), message="m 1") for at, gpu in enumerate(GPUS)
    ]
    rows[3] = finding(
        "lost", GPUS[3], health=Health.FATAL, data_status=DataStatus.STALE, since=-5.0, message="m 7"
    )
    [item] = fold_findings(rows, SLOTS)
    expected = (Health.FATAL, DataStatus.STALE, -5.0, "", "8 GPUs: m 7")
    assert (item.health, item.data_status, item.since, item.component, item.message) == expected


@given(result=findings)
def test_folding_keeps_each_target_once(result: list[Finding]) -> None:
    after = fold_findings(result, SLOTS)
    shown = Counter((item.check, target) for item in after for target in item.targets or (item.target,))
    assert shown == Counter((item.check, item.target) for item in result)


@given(result=findings)
def test_folding_is_idempotent(result: list[Finding]) -> None:
    once = fold_findings(result, SLOTS)
    assert sorted(fold_findings(once, SLOTS), key=repr) == sorted(once, key=repr)


@given(result=findings)
def test_findings_are_sorted_worst_first(result: list[Finding]) -> None:
    messages = sort_findings(result)
    assert [item.health.rank for item in messages] == sorted(
        (item.health.rank for item in result), reverse=True
    )
    assert sort_findings(reversed(result)) == messages
    assert worst_health(messages) == (messages[0].health if messages else Health.OK)
