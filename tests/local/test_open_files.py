from __future__ import annotations

import subprocess
import sys

from nodeguard.local.open_files import RESERVED, ConnectionCapacity, connection_capacity, most_connections

SCRIPT = "from nodeguard.local.open_files import raise_limit; print(raise_limit())"


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    command = ("prlimit", "--nofile=100:900", sys.executable, "-c", SCRIPT)
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "900\n"


def test_some_files_are_reserved() -> None:
    assert most_connections(1024) == 1024 - RESERVED
    assert most_connections(64) == 32
    assert connection_capacity(1_048_576, 20_000) == ConnectionCapacity(1_048_576, 20_000)
    assert connection_capacity(1024, 20_000) == ConnectionCapacity(1024, 768)


def test_the_shortage_names_limit_and_remedy() -> None:
    assert connection_capacity(1024, 20_000).shortage(768) == ""
    assert connection_capacity(1024, 20_000).shortage(7500) == (
        "7500 agents are expected, and 1024 open files allow 768: raise the hard limit on open files to "
        "7756 or more (LimitNOFILE= of a systemd unit, else of the container runtime), and restart the aggregator"
    )
    assert connection_capacity(7500 + RESERVED, 20_000).shortage(7500) == ""
    assert connection_capacity(1_048_576, 20_000).shortage(30_000) == (
        "30000 agents are expected, and an aggregator accepts 20000: run several, each for a part of the fleet"
    )
