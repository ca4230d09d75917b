"""The laptop of a person with some roles in a cluster: kubectl with the plug-in of nodeguard on the PATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.controlplane.cluster import Cluster
from tests.controlplane.credentials import write_kubeconfig
from tests.controlplane.programs import program
from tests.daemonset.manifests import NAMESPACE, token
from tests.docs.pages import printed_lines
from tests.docs.ran import record_command
from tests.paths import ROOT
from tests.waiting import PATIENCE

PAGE = "docs/tasks/use-from-a-laptop.md"

# The name of the laptop's user.
USER = "ada"


class Laptop:
    """Runs commands as a service account in place of a person. It is created, without a role."""

    def __init__(self, cluster: Cluster, person: str, directory: Path) -> None:
        self.person = person
        self._cluster = cluster
        cluster.kubectl("create", "serviceaccount", "-n", NAMESPACE, person)
        home = directory / person
        home.mkdir()
        write_kubeconfig(home / "kubeconfig", cluster.url, cluster.ca, token(cluster, person))
        (home / "kubectl").symlink_to(program("kubectl"))
        plugin = home / "kubectl-nodeguard"
        plugin.write_text(
            f"#!{sys.executable}\nimport sys\nfrom nodeguard.cli.main import kubectl_main\nsys.exit(kubectl_main())\n"
        )
        plugin.chmod(0o755)
        self.environment = {
            "PATH": f"{home}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(home),
            "KUBECACHEDIR": str(home / "cache"),
            "KUBECONFIG": str(home / "kubeconfig"),
            "SUDO_USER": USER,
        }

    def give(self, kind: str, role: str) -> None:
        """Give the person a role, as the pages do for groups. kind: `role` or `clusterrole`."""
        binding = ("rolebinding", "-n", NAMESPACE) if kind == "role" else ("clusterrolebinding",)
        subject = f"--serviceaccount={NAMESPACE}:{self.person}"
        self._cluster.kubectl("create", *binding, f"{self.person}-{role}", f"--{kind}={role}", subject)

    def run(self, *words: str, code: int = 0) -> str:
        """Run the plug-in; return its output, or its errors where it ends with another code than 0."""
        command = ["kubectl", "nodeguard", *words]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stderr if code else done.stdout

    def run_printed(self, printed: str, **names: str) -> str:
        """Run a command that the page prints. names: what is written in place of placeholders."""
        assert printed in printed_lines(PAGE)
        record_command(printed)
        for name, value in names.items():
            printed = printed.replace(name, value)
        done = subprocess.run(
            ["bash", "-c", printed],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{printed}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout
