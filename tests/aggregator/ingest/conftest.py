from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.aggregator.issuer import Issuer
from tests.controlplane.certificates import Authority


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer(time.time())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "authority").mkdir()
    return Authority(tmp_path / "authority")
