"""nodeguard explain."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

from nodeguard.backtest.mark_tracker import MarkEnd
from nodeguard.catalog.words import find_word
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.main import main
from nodeguard.doctor.diagnostics import DiagnosticStatus
from nodeguard.executors.kube.condition_reason import FAULT_REASONS
from nodeguard.fleet.decide.restraints import RestraintKind
from nodeguard.fleet_api.schema.capacity import WorkState
from nodeguard.fleet_api.schema.history import HistoryChange
from nodeguard.fleet_api.service_state import ObstacleKind
from nodeguard.judge.formatting import general_remedy
from nodeguard.model.action import ActionState
from nodeguard.model.finding import Action, DataStatus, Health
from nodeguard.model.incident import IncidentState, WriteState
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Mode

CATALOGUE, _ = load_catalogue()


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["explain", *words]) == 0
    return " ".join(capsys.readouterr().out.split())


def names_no_file_of_the_source_tree(text: str) -> bool:
    return ".yaml" not in text and "docs/" not in text


def test_every_check_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    catalogue, _ = load_catalogue()
    for check in catalogue.checks:
        text = printed(capsys, check.id)
        assert check.title in text
        assert general_remedy(check) in text
        assert "{" not in text
        assert names_no_file_of_the_source_tree(text), check.id


def test_every_fault_class_says_who_acts_where_to_look_and_how_it_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    catalogue, _ = load_catalogue()
    for fault_class in catalogue.fault_classes:
        guidance = fault_class.guidance
        assert guidance is not None, fault_class.name
        text = printed(capsys, fault_class.name)
        for sentence in (guidance.owner, guidance.first, guidance.nodes, guidance.end):
            assert sentence in text, fault_class.name
        assert names_no_file_of_the_source_tree(text), fault_class.name
    assert printed(capsys, "class", "link-down") == printed(capsys, "link-down")


EVENT_REASONS = {f"Nodeguard{state}" for state in IncidentState} - {"NodeguardOpen", "NodeguardPending"}
# What nodeguard prints as a state, a reason, an action or a kind, by the type that has the values.
PRINTED = {
    word
    for values in (
        Health, DataStatus, Action, IncidentState, WriteState, WorkState, Mark, Mode, ActionState, MarkEnd,
        DiagnosticStatus, FAULT_REASONS, get_args(ObstacleKind), get_args(RestraintKind),
        get_args(HistoryChange), EVENT_REASONS,
    )
    for word in values
}  # fmt: skip


@pytest.mark.parametrize("word", sorted(map(str, PRINTED)))
def test_every_word_of_the_output_is_explained(word: str) -> None:
    assert find_word(CATALOGUE.words, word) is not None


def test_a_word_is_explained_in_each_of_its_forms(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("withheld", "NodeguardWithheld"):
        assert f"{word} - a word of nodeguard A mark is requested and not set" in printed(capsys, word)
    assert printed(capsys, "dry", "run").startswith(
        "dry run - a word of nodeguard The check is not enforced."
    )
    assert "checks maintenance-imminent, " in printed(capsys, "maintenance")
    assert "`" not in printed(capsys, "NodeguardHealthy")


def test_a_metric_and_a_signal_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Metric. Findings that began since the agent started." in printed(
        capsys, "nodeguard_findings_total"
    )
    text = printed(capsys, "gpu.fabric.state")
    assert "kind state read by nvml checks fabric-not-ready, tray-fabric-not-ready" in text


def test_an_alert_is_explained_as_its_runbook_does(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "NodeguardMessagesRefused")
    assert text.startswith("NodeguardMessagesRefused - an alert of nodeguard Warning, after 15 min. ")
    assert "look `nodeguard status`, `nodeguard describe node NAME` and the agent's log have" in text
    assert "do `other-boot`: Two agents report for the node" in text
    assert "within half a minute. `used-sequence`: The same; or an agent" in text


def test_the_class_in_a_taint_lists_its_checks(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "class", "gpu-presence")
    assert "gpu-lost fatal GPU lost" in text
    assert "gpu-ecc-off" not in text


@pytest.mark.slow
def test_every_xid_and_sxid_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    catalogue, _ = load_catalogue()
    codes = (*(("Xid", code) for code in catalogue.xids), *(("SXid", code) for code in catalogue.sxids))
    for kind, code in codes:
        text = printed(capsys, kind.lower(), str(code))
        assert f"{kind} {code} - " in text
        assert names_no_file_of_the_source_tree(text), (kind, code)


@pytest.mark.parametrize(
    ("code", "treatment"),
    [
        ("79", "treated as fatal, action reboot-node"),
        ("13", "treated as a fault of the workload"),
        ("48", "treated as fatal; with Xid 63 or 64 within a minute: let work end first"),
        ("94", "depends on the driver's verdict"),
        ("145", "decoded by mask"),
        ("8", "treated as warning, action restart-workload"),
        ("63", "treated as ignored, action none"),
        ("167", "treated as suspect, action reset-gpu"),
    ],
)
def test_an_xid_has_its_treatment(code: str, treatment: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert treatment in printed(capsys, "xid", code)


def test_an_xid_names_the_checks_that_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "xid", "79").endswith("checks gpu-lost")
    assert printed(capsys, "xid", "13").endswith("checks gpu-xid-workload")


def test_a_number_that_may_be_an_exit_code_refers_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A container that is asked to end has exit code 143; Xid 143 is fatal."""
    assert main(["explain", "143"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Xid 143 - ")
    assert "see also      nodeguard explain 'exit code 143'" in printed
    for words in (["xid", "143"], ["79"]):
        assert main(["explain", *words]) == 0
        assert "exit code" not in capsys.readouterr().out


def test_an_unlisted_code_is_reported_as_unlisted(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "xid", "999")
    assert text.startswith("Xid 999 - not in this version's table")
    assert text.endswith("checks gpu-xid-unlisted")
    text = printed(capsys, "sxid", "99999")
    assert "not in this version's table" in text
    assert "lists it in this version" in text
    assert "blank" not in text


def test_a_code_with_only_a_name_has_no_blank_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert "action not listed" in printed(capsys, "sxid", "10000")


def test_a_number_is_an_xid(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "79").startswith("Xid 79 - GPU has fallen off the bus")


def test_sxids_are_counted_beside_checks_and_listed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    """An SXid has only an identifier of the driver as its name."""
    text = printed(capsys, "ecc")
    assert "gpu-ecc-uncorrectable" in text
    assert "xid 48" in text
    counted = re.search(r"and (\d+) SXids: nodeguard explain sxid ecc", text)
    assert counted is not None
    listed = printed(capsys, "SXid", "ecc")
    assert listed.startswith(f"{counted[1]} matches - SXid ecc")
    assert len(re.findall(r"sxid \d+ ", listed)) == int(counted[1])
    assert "gpu-ecc" not in listed


def test_one_match_is_not_several(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "sxid", "mcto").startswith("1 match - ")


@pytest.mark.parametrize(
    ("words", "matches"), [("ecc", "gpu-ecc"), ("remap", "gpu-row-remap"), ("fallen bus", "xid 79")]
)
def test_other_words_are_searched(words: str, matches: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, words)
    assert f"matches - {words}" in text
    assert matches in text
    assert main(["explain", words, "-o", "json"]) == 0
    assert any(match["name"].startswith(matches) for match in json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    "words",
    [
        ["Xid", "79"],
        ["XID", "79"],
        ["xid79"],
        ["Xid 79"],
        ["xid:", "79"],
        ["XID-79"],
        ["Xid", "79,", "pid='<unknown>',", "name=<unknown>,", "GPU", "has", "fallen", "off", "the", "bus."],
    ],
)
def test_a_code_may_be_written_as_the_log_does(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, *words) == printed(capsys, "xid", "79")


def test_a_check_may_be_written_in_capitals(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "GPU-LOST") == printed(capsys, "check", "gpu-lost")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["gpu-lots"], "'gpu-lots' matches no check, code or word of the output: did you mean gpu-lost"),
        (["xid", "63", "64"], "'63 64' is not the number of an Xid"),
        (["xid", "seven"], "'seven' is not the number of an Xid"),
        (["sxid", "9" * 30], "is not the number of an SXid"),
        (["xid"], "'xid' has no number: write nodeguard explain xid 79"),
        ([""], "SUBJECT is empty: name a check, a code or words to search for"),
        ([" ", ""], "SUBJECT is empty"),
        (["sxid", " "], "'sxid' has no number"),
        (
            ["frob", "gronk"],
            "'frob gronk' matches no check, code or word of the output: see nodeguard get checks",
        ),
        (["frob", "the", "gronk"], "the text is none of "),
        (["node", "gpu-7"], "a node is described, not explained: write nodeguard describe node NAME"),
    ],
)
def test_an_unknown_subject_exits_with_3(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words]) == 3
    assert error in capsys.readouterr().err


def test_a_text_that_is_not_known_gets_the_next_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "frob: the gronk is gone"]) == 3
    answer = capsys.readouterr().err
    assert f"none of {len(CATALOGUE.patterns)} lines of the kernel log" in answer
    assert f"none of {len(CATALOGUE.program_messages)} kinds of errors" in answer
    assert "nodeguard check on the node" in answer
    assert "nodeguard explain - < FILE" in answer


def test_a_text_that_is_no_fault_of_the_hardware_is_named_so(capsys: pytest.CaptureFixture[str]) -> None:
    program = printed(capsys, "ptxas fatal : Value 'sm_121a' is not defined for option 'gpu-name'")
    assert "caused by the program, as a rule: this is no fault of the hardware" in program
    settings = printed(capsys, "slurmctld: error: Duplicate jobid on nodes gpu-7, set to state DRAIN")
    assert "other software, as a rule: this is no fault of the hardware" in settings
    assert "The administrator of Slurm" in settings


def test_json_has_the_same_facts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "xid", "79", "-o", "json"]) == 0
    code = json.loads(capsys.readouterr().out)
    assert (code["kind"], code["code"], code["checks"]) == ("xid", 79, ["gpu-lost"])
    assert code["summary"].startswith("GPU has fallen off the bus")
    assert code["treated_as"] == "fatal, action reboot-node"
    assert len(code["notes"]) > 1
    assert main(["explain", "GPU-LOST", "-o", "json"]) == 0
    check = json.loads(capsys.readouterr().out)
    assert (check["id"], check["health"], check["when"]["type"]) == ("gpu-lost", "fatal", "any")


@pytest.mark.parametrize("word", ["text", "table"])
def test_text_has_two_words(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "gpu-lost", "-o", word) == printed(capsys, "gpu-lost")
