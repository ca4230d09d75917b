from __future__ import annotations

from pathlib import Path

import pytest

from nodeguard.catalog.catalogue import add_site_checks
from nodeguard.catalog.fault_classes import load_fault_classes
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.config.errors import ConfigError
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.diagnosis import (
    LOCATION_TOPOLOGIES,
    STALE_CHECK,
    VERSION_TOPOLOGIES,
    FaultClass,
    VoteTopology,
)

FIELDS = {
    "phrase": "lost a fan",
    "checks": '["fan-*"]',
    "topologies": "[{topology: rack}]",
    "windows": "[2m, 1h]",
    "share": "0.25",
}


def row(name: str = "fans", **fields: str) -> str:
    """Return a fault class in YAML, with each field on a line of its own, from the second line on."""
    return f"- name: {name}\n" + "".join(f"  {key}: {value}\n" for key, value in {**FIELDS, **fields}.items())


def load(folder: Path, *rows: str) -> tuple[FaultClass, ...]:
    (folder / "fault-classes.yaml").write_text("".join(rows))
    return load_fault_classes(folder, ["fan-slow"])


def load_site(folder: Path, *rows: str) -> Catalogue:
    """Return the catalogue with the fault classes of a site's file."""
    lines = "".join(rows).replace("\n", "\n  ").rstrip()
    (folder / "site.yaml").write_text(f"fault_classes:\n  {lines}\n")
    catalogue, signals = load_catalogue()
    return add_site_checks(catalogue, [folder], signals)


def test_built_in_classes_vote_in_every_topology() -> None:
    classes = load_catalogue()[0].fault_classes
    topologies = {topology.topology for fault_class in classes for topology in fault_class.topologies}
    assert topologies == {*LOCATION_TOPOLOGIES, *VERSION_TOPOLOGIES} - {"zone"}
    assert [fault_class.name for fault_class in classes if STALE_CHECK in fault_class.checks] == ["silent"]


def test_fields_have_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, row()) == (
        FaultClass("fans", ("fan-*",), (VoteTopology("rack"),), (120.0, 3600.0), 0.25, "lost a fan"),
    )


def test_every_field_is_read(tmp_path: Path) -> None:
    topologies = "[{topology: power, share: 0.3}]"
    flags = {"daily_rate": "0.5", "weak": "true", "lasting": "true", "job_start_checks": '["fan-slow"]'}
    [fault_class] = load(tmp_path, row(topologies=topologies, **flags))
    assert fault_class.job_start_checks == ("fan-slow",)
    assert fault_class.topologies == (VoteTopology("power", 0.3),)
    assert (fault_class.daily_rate, fault_class.weak, fault_class.lasting) == (0.5, True, True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"topologies": "[{topology: village}]"}, "4: topology: 'village' is not valid: use one of "),
        ({"topologies": "[{topology: rack}, {topology: rack}]"}, "4: topology: 'rack' is on line 4 already"),
        ({"windows": "[2 minutes]"}, "5: windows[0]: '2 minutes' is no duration: write it like 30s, 5m"),
        ({"windows": "[]"}, "5: windows: "),
        ({"share": "1.5"}, "6: share: "),
        (
            {"checks": '["fan-*", "pump-*"]'},
            "3: checks[1]: 'pump-*' matches no check: see `nodeguard checks`",
        ),
        (
            {"job_start_checks": '["pump-*"]'},
            "7: job_start_checks[0]: 'pump-*' matches no check: see `nodeguard checks`",
        ),
        ({"votes": "2"}, "7: votes: is not known here: "),
    ],
)
def test_invalid_class_is_refused_with_file_and_line(
    tmp_path: Path, fields: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, row(**fields))
    assert str(caught.value).startswith(f"{tmp_path}/fault-classes.yaml:{message}")


def test_two_classes_with_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"yaml:7: name: 'fans' is on line 1 already"):
        load(tmp_path, row(), row())


def test_site_adds_a_class(tmp_path: Path) -> None:
    before = load_catalogue()[0].fault_classes
    classes = load_site(tmp_path, row(checks='["port-*"]')).fault_classes
    assert classes[:-1] == before
    assert (classes[-1].name, classes[-1].checks) == ("fans", ("port-*",))


def test_site_replaces_a_class_of_the_same_name(tmp_path: Path) -> None:
    before = load_catalogue()[0].fault_classes
    classes = load_site(tmp_path, row("link", checks='["port-*"]')).fault_classes
    assert [fault_class.name for fault_class in classes] == [fault_class.name for fault_class in before]
    [link] = [fault_class for fault_class in classes if fault_class.name == "link"]
    assert link.phrase == "lost a fan"


def test_class_of_a_site_without_a_matching_check_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"site.yaml:4: checks\[0\]: 'fan-\*' matches no check"):
        load_site(tmp_path, row())


def test_checks_that_the_start_of_a_job_may_cause_are_not_of_a_class_of_lasting_faults() -> None:
    classes = load_catalogue()[0].fault_classes
    lasting = {check for fault_class in classes if fault_class.lasting for check in fault_class.checks}
    of_starts = {check for fault_class in classes for check in fault_class.job_start_checks}
    assert of_starts == {"port-flap", "port-link-downed"}
    assert of_starts.isdisjoint(lasting - {"*"})
