from __future__ import annotations

import pytest

from nodeguard.cli.gpu_names import gpu_name
from nodeguard.cli.usage import UsageError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("0000:3b:00", "0000:3b:00"),
        ("gpu/0000:3b:00", "0000:3b:00"),
        ("GPU 0000:3b:00", "0000:3b:00"),
        ("3b:00", "0000:3b:00"),
        ("3b:00.0", "0000:3b:00"),
        ("00000000:3B:00.0", "0000:3b:00"),
        ("0000:3B:00.0", "0000:3b:00"),
        ("3", "3"),
        ("GPU 3", "3"),
        ("GPU-5C8F0005-0a1b-2c3d-4e5f-60718293a4b5", "GPU-5c8f0005-0a1b-2c3d-4e5f-60718293a4b5"),
    ],
)
def test_the_names_of_tools_are_accepted(text: str, name: str) -> None:
    assert gpu_name(text) == name


@pytest.mark.parametrize("text", ["", "1000", "GPU-x", "zz:00", "0000:3b:00/nvlink/3"])
def test_another_name_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError, match="not an index, UUID or PCI address: write it like 3"):
        gpu_name(text)
