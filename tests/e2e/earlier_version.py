"""The aggregator of an earlier commit: its program from the history of Git, and its manifests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.controlplane.cluster import Cluster
from tests.daemonset.helm import grant_rights
from tests.daemonset.manifests import DAEMONSET
from tests.paths import ROOT

# The commit from which upgrades are tested until there is a release: the last one with another form of its marks.
COMMIT = "7cd128d82b85ff6d08bcc647661f67887a29790b"

# What the aggregator needs, and the manifests that differ between versions.
_PATHS = ("nodeguard", "checks", "daemonset")
_MANIFESTS = ("crd-nodeincidents.yaml", "rbac.yaml", "admission-policy.yaml")


def has_earlier_version() -> bool:
    """Return whether the history of this checkout has the commit: a shallow clone and an archive do not."""
    command = ["git", "-C", str(ROOT), "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


class EarlierVersion:
    """The earlier commit in a directory. program: that Python runs as the earlier aggregator."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "earlier"
        self._directory.mkdir()
        archive = directory / "earlier.tar"
        command = ["git", "-C", str(ROOT), "archive", f"--output={archive}", COMMIT, *_PATHS]
        subprocess.run(command, check=True)
        subprocess.run(["tar", "-xf", str(archive), "-C", str(self._directory)], check=True)
        archive.unlink()
        # In an installation the checks are a package of their own, which would otherwise be that of this checkout.
        (self._directory / "nodeguard/checks").symlink_to("../checks")
        code = (
            f"import sys; sys.path.insert(0, {str(self._directory)!r}); "
            "from nodeguard.cli.main import main; sys.exit(main())"
        )
        self.program = ("-c", code)

    def apply(self, cluster: Cluster) -> None:
        """Apply the definitions and rights of the earlier version in place of the present ones, as a rollback does."""
        _apply(cluster, self._directory / "daemonset")


def apply_present(cluster: Cluster, policy: str) -> None:
    """Apply the present definitions and rights, as an upgrade does. policy: that needs them."""
    _apply(cluster, DAEMONSET)
    grant_rights(cluster, policy)


def _apply(cluster: Cluster, manifests: Path) -> None:
    for name in _MANIFESTS:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(manifests / name))
