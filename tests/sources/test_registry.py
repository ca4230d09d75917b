from __future__ import annotations

import subprocess
import sys

from nodeguard.sources.registry import SOURCES, all_sources

NAMES = [source.name for source in SOURCES]


def test_a_source_is_named_as_its_module() -> None:
    assert [source.__module__.rpartition(".")[2] for source in SOURCES] == NAMES
    assert sorted(NAMES) == NAMES
    assert {"host", "maintenance", "nvml", "observations"} <= set(NAMES)


def test_sources_with_log_patterns_come_last_and_each_call_returns_new_instances() -> None:
    first, second = all_sources(()), all_sources(())
    assert [source.name for source in first] == [*NAMES, "kmsg"]
    assert not {id(source) for source in first} & {id(source) for source in second}


def test_the_order_of_imports_does_not_change_the_sources() -> None:
    program = (
        "import nodeguard.sources.services, nodeguard.sources.kmsg, nodeguard.sources.clock\n"
        "from nodeguard.sources.registry import all_sources\n"
        "print(*(source.name for source in all_sources(())))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == [*NAMES, "kmsg"]
