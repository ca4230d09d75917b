"""Imports of `nodeguard check`: the pipeline, and nothing of the agent."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fixtures.bundles import bundle_path


@pytest.mark.parametrize("output", ["table", "json", "prometheus"])
def test_check_loads_nothing_of_the_agent(output: str) -> None:
    code = (
        "import sys\n"
        "from nodeguard.cli.main import main\n"
        "main(sys.argv[1:])\n"
        "print(sorted(name for name in sys.modules if name.startswith('nodeguard.agent')), file=sys.stderr)"
    )
    arguments = ["check", "--from", str(bundle_path("gpu-hot")), "--format", output]
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert process.stderr.splitlines()[-1] == "[]"
