"""nodeguard backtest."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fixtures.bundles import bundle_path
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.cli.main import main
from nodeguard.model.finding import Health
from tests.backtest.scene import START, FleetHistory
from tests.backtest.test_domain_tracker import leaf_history

FREE = "modeRules: [{check: '*', mode: enforce}]\nbudget: {perCheck: {new: 50, active: 50}, pool: 20%, fleet: 20%, domain: 100%}\n"
DOMAINS = (
    "modeRules: [{check: '*', mode: enforce}]\n"
    "topologies: {fabric: [pod, rack]}\ndiagnosis: {enforce: [fabric]}\n"
)
DRAIN = (
    f"{FREE}drain: {{mode: observe, rules: [{{check: '*', when: immediately}}], limits: {{newPerHour: 1}}}}\n"
)
TIGHT = "modeRules: [{check: '*', mode: enforce}]\nbudget: {perCheck: {new: 1, active: 1}}\n"


class Site:
    """A directory with histories and policies."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory, self.capsys = directory, capsys
        self.policy("free.yaml", FREE)
        self.policy("tight.yaml", TIGHT)

    def policy(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def history(self, view: FleetHistory, name: str = "history.sqlite", alive: float = 0.0) -> str:
        store = HistoryStore(str(self.directory / name))
        store.add(sorted(view.steps, key=lambda item: item.at), START + alive)
        store.close()
        return str(self.directory / name)

    def printed(self, *words: str, policy: tuple[str, ...] = ("free.yaml",)) -> tuple[int, str, str]:
        policies = [term for name in policy for term in ("--policy", name)]
        code = main(["backtest", *policies, *words])
        printed = self.capsys.readouterr()
        out, error = (text.replace(f"{self.directory}/", "") for text in printed)
        return code, out, error

    def refused(self, *words: str, policy: tuple[str, ...] = ("free.yaml",)) -> str:
        code, out, error = self.printed(*words, policy=policy)
        assert (code, out) == (3, "")
        return error.splitlines()[-1].removeprefix("nodeguard backtest: ")

    def json(self, *words: str, policy: tuple[str, ...] = ("free.yaml",)) -> Any:
        code, out, _ = self.printed(*words, "-o", "json", policy=policy)
        assert code == 0
        return json.loads(out)


@pytest.fixture
def site(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    return Site(tmp_path, capsys)


def month() -> FleetHistory:
    """Return a history with two nodes that are unhealthy for a while, one of them twice, and one that gets worse."""
    view = FleetHistory(40)
    view.fault(100.0, 1)
    view.report(400.0, 1)
    view.fault(9000.0, 1)
    view.fault(100.0, 2)
    view.fault(5000.0, 3, "port-flap", health=Health.SUSPECT)
    view.fault(6000.0, 3, "port-flap")
    return view


def test_a_history_is_shown_by_check_and_by_mark(site: Site) -> None:
    code, out, _ = site.printed(site.history(month(), alive=20_000.0))
    assert code == 0
    assert (
        out
        == """\
BACKTEST  40 nodes in 5 h 33 min: free.yaml marks 3.
  time        2023-11-14 22:13:20 UTC to 2023-11-15 03:46:40 UTC
  reports     46 transitions of 40 nodes

POLICY  free.yaml
  marked      5 marks of 3 nodes, 13.0 node-hours; 3 nodes at one time, first at 2023-11-15 00:43:25 UTC

CHECK      MARK        MARKS  NODES  HOURS  BRIEF  AGAIN  WORSE  UNSET  SPARED  MISSED
gpu-lost   quarantine      3      2    8.8      1      1      -      -       -       -
port-flap  quarantine      1      1    3.9      -      -      -      -       -       -
port-flap  suspect         1      1    0.3      -      -      1      -       -       -

  brief       resolved by itself within 10 min of the mark: 20% of all marks, 4% to 62% at 95%
  again       the fault returned within 1 d: 20% of all marks, 4% to 62% at 95%
  worse       became fatal, or fatal within 1 d: 20% of all marks, 4% to 62% at 95%

QUARANTINE  node-1, GPU 0000:3b:00: gpu-lost, 2023-11-15 00:43:25 UTC to the end
            not resolved

QUARANTINE  node-3, GPU 0000:3b:00: port-flap, 2023-11-14 23:53:25 UTC to the end
            not resolved

SUSPECT     node-3, GPU 0000:3b:00: port-flap, 2023-11-14 23:37:40 UTC for 15 min 45 s
            not resolved; became fatal; replaced by another mark

QUARANTINE  node-2, GPU 0000:3b:00: gpu-lost, 2023-11-14 22:15:05 UTC to the end
            not resolved

QUARANTINE  node-1, GPU 0000:3b:00: gpu-lost, 2023-11-14 22:15:05 UTC for 14 min 56 s
            resolved by itself after 4 min 54 s; the fault returned; released after the check passed
"""
    )


def test_drains_are_shown_with_what_delays_them(site: Site) -> None:
    site.policy("drain.yaml", DRAIN)
    path = site.history(month(), alive=10_000.0)
    _, out, _ = site.printed(path, policy=("drain.yaml",))
    assert [line for line in out.splitlines() if "drain" in line][2:] == [
        "  drained     3 drains of 3 nodes: gpu-lost 2, port-flap 1; 2 waited, up to 1 h: 1 of 1 drains began within an hour",
        "              (drain.limits.newPerHour)",
        "  waiting     1 drain: 1 of 1 drains began within an hour (drain.limits.newPerHour) (1)",
    ]
    [policy] = site.json(path, policy=("drain.yaml",))["policies"]
    assert policy["drains"][0] == {
        "node": "node-1", "target": "gpu/0000:3b:00", "checks": ["gpu-lost"],
        "requested": "2023-11-14T22:15:06Z", "begun": "2023-11-14T22:15:06Z", "reason": "",
    }  # fmt: skip


def test_degraded_domains_are_shown_with_their_incident(site: Site) -> None:
    site.policy("domains.yaml", DOMAINS)
    path = site.history(leaf_history(), alive=20_000.0)
    code, out, _ = site.printed(path, policy=("domains.yaml",))
    assert code == 0
    assert out.startswith(
        "BACKTEST  80 nodes in 5 h 33 min: domains.yaml marks 0, and 8 in degraded domains.\n"
    )
    shown = out[out.index("  marked ") :]
    assert shown.startswith(
        """\
  marked      no single node
  degraded    1 domain; 8 nodes marked, 19.9 node-hours; 8 nodes at one time
  covered     8 marks of single nodes, by the mark of their domain

DEGRADED    fabric/p0/r0, 2023-11-14 22:15:18 UTC for 2 h 29 min
            incident fabric-p0-r0-7e385bdb
            fabric/p0/r0: 8 of 8 nodes lost a link within 7 s; the other 4 domains of fabric/p0 did not
            gang work is kept off 8 nodes
"""
    )
    [policy] = site.json(path, policy=("domains.yaml",))["policies"]
    assert (policy["domain_nodes"], policy["domain_node_hours"], policy["max_domain_nodes"]) == (8, 19.867, 8)
    [domain] = policy["domains"]
    assert (domain["incident"], domain["state"]) == ("fabric-p0-r0-7e385bdb", "Marked")
    assert [check["covered"] for check in policy["checks"]] == [8]


def test_two_policies_are_compared(site: Site) -> None:
    path = site.history(month(), alive=20_000.0)
    code, out, _ = site.printed(path, policy=("free.yaml", "tight.yaml"))
    assert code == 0
    assert out.startswith("BACKTEST  40 nodes in 5 h 33 min: free.yaml marks 3; tight.yaml marks 3.\n")
    assert (
        "withheld 3 marks: budget of check gpu-lost has reached its limit: 1 of 1 active mark (2); "
        "fleet budget has reached its limit: 1 of 2 nodes marked, 1 kept for quarantine (1) "
    ) in " ".join(out.split())
    assert "\nDIFFERENCE  tight.yaml against free.yaml\n  both        3 marks under both policies\n" in out
    assert "\nunder free.yaml only:\n\nQUARANTINE  node-" in out
    view = site.json(path, policy=("free.yaml", "tight.yaml"))
    assert view["difference"]["both"] + len(view["difference"]["first"]) == 5
    assert view["difference"]["second"] == []


def test_domains_of_two_policies_are_compared(site: Site) -> None:
    site.policy("domains.yaml", DOMAINS)
    path = site.history(leaf_history(), alive=20_000.0)
    code, out, _ = site.printed(path, policy=("free.yaml", "domains.yaml"))
    assert code == 0
    assert (
        """\
DIFFERENCE  domains.yaml against free.yaml
  both        0 marks under both policies
  no more     8 marks under free.yaml only; 8 covered by the mark of a domain under domains.yaml
  new         0 marks under domains.yaml only
  hours       -17.3 node-hours
  domains     0 under both policies, 0 under free.yaml only, 1 under domains.yaml only
  in domains  0 nodes marked under free.yaml only, 8 under domains.yaml only; +19.9 node-hours

under free.yaml only:

QUARANTINE  node-7,"""
        in out
    )
    assert "\nunder domains.yaml only:\n\nDEGRADED    fabric/p0/r0, 2023-11-14 22:15:18 UTC" in out
    difference = site.json(path, policy=("free.yaml", "domains.yaml"))["difference"]
    [domain] = difference["second_domains"]
    assert (domain["domain"], domain["nodes"], difference["first_domains"]) == ("fabric/p0/r0", 8, [])
    assert (difference["first_domain_nodes"], difference["second_domain_nodes"]) == (0, 8)
    assert (difference["both_domains"], difference["first_covered"]) == (0, 8)


def test_json_has_the_same_results(site: Site) -> None:
    view = site.json(site.history(month(), alive=20_000.0))
    assert (view["version"], view["nodes"], view["transitions"], view["difference"]) == (1, 40, 46, None)
    [policy] = view["policies"]
    assert (policy["file"], policy["nodes"], policy["max_marked"]) == ("free.yaml", 3, 3)
    assert policy["marks"][0] == {
        "node": "node-1", "uid": "uid-1", "pool": "", "check": "gpu-lost", "target": "gpu/0000:3b:00",
        "mark": "quarantine", "state": "Marked", "from": "2023-11-14T22:15:05Z",
        "until": "2023-11-14T22:30:01Z", "ended": "proven", "reasons": [],
        "next": {
            "finding_end": "resolved", "seconds": pytest.approx(294.999, abs=0.01), "brief": True, "recurred": True,
            "escalated": False,
        },
    }  # fmt: skip


def test_histories_of_replicas_are_merged(site: Site) -> None:
    view, late = month(), month()
    late.steps = [item for item in late.steps if item.at > START + 4000.0]
    item, two = site.history(view, "one.sqlite", 100.0), site.history(late, "two.sqlite", 20_000.0)
    both = site.json(item, two)
    assert (both["transitions"], both["until"]) == (46, "2023-11-15T03:46:40Z")


def test_each_recording_is_a_node(site: Site) -> None:
    names = ("ecc-uncorrectable", "healthy-dgx-h100")
    view = site.json(*(str(bundle_path(name)) for name in names))
    [policy] = view["policies"]
    assert (view["nodes"], policy["nodes"]) == (2, 1)
    assert {item["node"] for item in policy["marks"]} == {"ecc-uncorrectable"}


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_line_is_longer_than_the_terminal_is_wide(
    site: Site, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = site.printed(site.history(month(), alive=20_000.0), policy=("free.yaml", "tight.yaml"))
    table = [line for line in out.splitlines()[1:] if " MARKS " in line or "quarantine  " in line]
    assert all(len(line) <= max(columns, 85) for line in out.splitlines()[1:])
    assert table


@pytest.mark.parametrize("number", [0, 12])
def test_a_row_from_a_clock_that_was_ahead_has_the_time_of_the_row_before(site: Site, number: int) -> None:
    view = month()
    store = HistoryStore(str(site.directory / "ahead.sqlite"))
    steps = sorted(view.steps, key=lambda item: item.at)
    steps[number] = replace(steps[number], at=1e12)
    store.add(steps, START + 20_000.0)
    store.close()
    path = str(site.directory / "ahead.sqlite")
    expected = site.json(site.history(view, alive=20_000.0))
    assert {key: site.json(path)[key] for key in ("until", "nodes", "transitions")} == {
        key: expected[key] for key in ("until", "nodes", "transitions")
    }
    assert site.printed(path)[2].splitlines()[-1] == (
        "ahead.sqlite: 1 row with a time in the future, replayed at the time of the row before: "
        "check the clocks of the aggregators"
    )


def test_since_limits_the_time_range(site: Site) -> None:
    view = month()
    shift = time.time() - START - 10_000.0
    site.history(view)
    moved = [
        type(item)(item.at + shift, *(getattr(item, name) for name in item.__struct_fields__[1:]))
        for item in sorted(view.steps, key=lambda item: item.at)
    ]
    store = HistoryStore(str(site.directory / "new.sqlite"))
    store.add(moved, time.time())
    store.close()
    path = str(site.directory / "new.sqlite")
    assert len(site.json(path)["policies"][0]["marks"]) == 5
    assert len(site.json(path, "--since", "6500s")["policies"][0]["marks"]) == 4
    assert site.refused(path, "--since", "1s").startswith("--since: no report within 1 s, the latest at 2")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nowhere.sqlite"], "nowhere.sqlite: no such file or directory: name the file that aggregator --history writes, or bundles"),
        (["other"], "other: there is no history.sqlite in it: name the file that aggregator --history writes, or bundles"),
        (["free.yaml"], "free.yaml: it is not a history of nodeguard, or damaged (file is not a database): name the file of aggregator --history"),
        (["empty"], "empty: it is empty: nothing was recorded yet, or it is another file"),
        (["none.sqlite"], "none.sqlite: no report of an agent is there: wait, or choose another source"),
        (["ecc-uncorrectable", "other/ecc-uncorrectable"], "ecc-uncorrectable and other/ecc-uncorrectable have the same name ecc-uncorrectable, which is that of their node: rename one"),
        (["broken"], "broken/bundle.yaml: line 1: boot_id: is missing: add it"),
    ],
)  # fmt: skip
def test_an_invalid_source_is_refused(site: Site, words: list[str], reason: str) -> None:
    (site.directory / "empty").touch()
    site.history(FleetHistory(0), "none.sqlite")
    (site.directory / "other").mkdir()
    (site.directory / "broken").mkdir()
    (site.directory / "broken" / "bundle.yaml").write_text("hostname: a\n")
    for path in ("ecc-uncorrectable", "other/ecc-uncorrectable"):
        (site.directory / path).symlink_to(bundle_path("ecc-uncorrectable"))
    assert site.refused(*(f"{site.directory}/{term}" for term in words)).startswith(reason)


def test_an_invalid_policy_has_the_error_of_policy_check(site: Site) -> None:
    path = site.history(month())
    site.policy("wrong.yaml", "mode: enfroce\n")
    printed = site.refused(path, policy=("wrong.yaml",))
    main(["policy", "check", "wrong.yaml"])
    assert printed == site.capsys.readouterr().err.strip().replace(f"{site.directory}/", "").removeprefix(
        "nodeguard policy: "
    )
    assert site.refused(path, policy=("free.yaml",) * 3) == ("3 policies: expected one, or two to compare")


def test_policy_check_against_a_history_prints_the_backtest(site: Site) -> None:
    path = site.history(month(), alive=20_000.0)
    site.policy("valid.yaml", f"version: 1\n{TIGHT}")
    _, backtest, _ = site.printed(path, policy=("valid.yaml",))
    assert main(["policy", "check", "valid.yaml", "--against", path]) == 1
    printed = site.capsys.readouterr().out
    assert printed.startswith("valid.yaml - ")
    assert printed.endswith(f"\n\n{backtest}")
    _, compared, _ = site.printed(path, policy=("free.yaml", "valid.yaml"))
    words = ["policy", "check", "valid.yaml", "--current", "free.yaml", "--against", path]
    assert main(words) == 1
    assert site.capsys.readouterr().out.endswith(f"\n\n{compared}")
    view = site.json(path, policy=("free.yaml", "valid.yaml"))
    assert main([*words, "-o", "json"]) == 1
    assert json.loads(site.capsys.readouterr().out)["against"] == view
    assert main(words[:-2]) == 3
    remedy = "--current is for --against only: add --against, or remove --current"
    assert remedy in site.capsys.readouterr().err
