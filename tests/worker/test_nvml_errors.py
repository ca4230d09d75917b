from __future__ import annotations

import pynvml

from nodeguard.worker.nvml_json import NAMES, failure


def test_names_are_those_of_pynvml() -> None:
    theirs = {
        code: name
        for name, code in vars(pynvml).items()
        if name.startswith("NVML_ERROR_") and isinstance(code, int)
    }
    assert theirs.items() <= NAMES.items()


def test_an_unknown_code_keeps_its_number() -> None:
    assert failure(15) == {"error": "NVML_ERROR_GPU_IS_LOST"}
    assert failure(31) == {"error": "NVML_ERROR_31"}
