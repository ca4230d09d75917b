"""The log of a standalone aggregator, which a script follows to drain and resume nodes, as the page describes it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks, text
from tests.e2e.processes import until
from tests.e2e.test_standalone import XID, Site, insecure_settings

pytestmark = pytest.mark.slow

PAGE = "docs/install/standalone.md"
# A soak period in which the test sees the state `Recovering`, and a fault that is not enforced.
POLICY = """
modeRules:
- {check: '*', mode: enforce}
- {check: gpu-lost-any, mode: observe}
gracePeriod: {quarantine: 1s}
soak: {initial: 2s, max: 2s}
"""


def documented_line() -> Mapping[str, Any]:
    [block] = [block for block in blocks(PAGE) if block.language == "json"]
    line: Mapping[str, Any] = json.loads(block.text)
    return line


def documented_states() -> set[str]:
    section = text(PAGE).partition("## Operate")[2].partition("## State")[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


def test_the_log_has_every_documented_state(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY)

    def logged(node: str) -> list[str]:
        return [line["state"] for line in site.logged_incidents() if line["node"] == node]

    with ExitStack() as stack:
        stack.enter_context(site.aggregator("--insecure"))
        bundles = {
            name: stack.enter_context(site.node(name, insecure_settings(site), recording))
            for name, recording in {
                "gpu-1": "healthy-dgx-h100",
                "gpu-2": "healthy-dgx-h100",
                "gpu-3": "gpu-no-handle",
            }.items()
        }
        until(lambda: logged("gpu-3") == ["DryRun"], site.log)
        with (bundles["gpu-1"] / "kmsg").open("a") as kernel:
            kernel.write(XID)
        until(lambda: logged("gpu-1") == ["Advised"], site.log)
        site.run("pause", "--reason", "a bad driver")
        with (bundles["gpu-2"] / "kmsg").open("a") as kernel:
            kernel.write(XID)
        until(lambda: logged("gpu-2") == ["Withheld"], site.log)
        [incident] = [item["name"] for item in site.query("get", "incidents", "--node", "gpu-1")["incidents"]]
        assert site.run("incidents", "clear", incident).returncode == 0
        until(lambda: logged("gpu-1") == ["Advised", "Recovering", "Resolved"], site.log)
        lines = site.logged_incidents()
    assert {line["state"] for line in lines} == documented_states()
    printed = documented_line()
    assert all(line.keys() == printed.keys() for line in lines)
    [advised] = [line for line in lines if line["state"] == "Advised"]
    same = ("logger", "msg", "node", "incident", "health", "check", "target", "action", "scope", "reason")
    assert [advised[name] for name in same] == [printed[name] for name in same]
    reasons = {line["state"]: line["reason"] for line in lines}
    assert "a bad driver" in reasons["Withheld"]
    assert reasons["DryRun"] == "would quarantine node gpu-3"
