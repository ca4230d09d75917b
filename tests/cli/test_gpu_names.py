from __future__ import annotations

import pytest

from nodeguard.cli.gpu_names import gpu_address
from nodeguard.cli.usage import UsageError


@pytest.mark.parametrize(
    "text",
    [
        "0000:3b:00",
        "gpu/0000:3b:00",
        "GPU 0000:3b:00",
        "3b:00",
        "3b:00.0",
        "00000000:3B:00.0",
        "0000:3B:00.0",
    ],
)
def test_a_gpu_is_named_as_tools_print_it(text: str) -> None:
    assert gpu_address(text) == "0000:3b:00"


@pytest.mark.parametrize("text", ["", "3", "GPU-5c8f0005", "zz:00", "0000:3b:00/nvlink/3"])
def test_another_name_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(UsageError, match="write it like 0000:3b:00; nvidia-smi -L"):
        gpu_address(text)
