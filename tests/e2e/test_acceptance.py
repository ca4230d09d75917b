"""What a new operator does, with the commands of the documentation, from the installation to the removal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.acceptance import Acceptance
from tests.kubelet.site import Site
from tests.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.promtool]

# How long each step took in the last run, for people.
TABLE = ROOT / "build" / "acceptance.txt"


@pytest.fixture
def acceptance(site: Site, tmp_path: Path) -> Iterator[Acceptance]:
    """A site without nodeguard, with GPUs on its nodes, Prometheus and Alertmanager. After the test, or where it
    fails, the site is without nodeguard and GPUs again.
    """
    accepted = Acceptance(site, tmp_path)
    accepted.fleet.uninstall_leftover()
    accepted.delete_objects()
    with ExitStack() as stack:
        for node in site.nodes.values():
            stack.callback(accepted.fleet.remove_gpus, node)
            accepted.fleet.publish_gpus(node, 2)
        for clean in (
            accepted.delete_objects,
            accepted.release_hold,
            accepted.fleet.uninstall_leftover,
            accepted.delete_pods,
        ):
            stack.callback(clean)
        stack.enter_context(accepted.tickets.serving())
        stack.enter_context(accepted.pager.serving())
        stack.enter_context(accepted.monitoring().running())
        yield accepted


def test_the_documentation_leads_a_new_operator_from_installation_to_removal(
    acceptance: Acceptance, capsys: pytest.CaptureFixture[str]
) -> None:
    acceptance.install()
    acceptance.check_installation()
    acceptance.set_up_notifications()
    with acceptance.status_page():
        acceptance.rehearse_in_observe_mode()
    acceptance.enforce()
    acceptance.recover()
    acceptance.upgrade_with_a_mark()
    acceptance.remove()
    # Two minutes after the end of the fault, meanwhile without nodeguard.
    acceptance.expect_resolved_alert()
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(acceptance.waits.table())
    with capsys.disabled():
        print(f"\n{acceptance.waits.table()}")
