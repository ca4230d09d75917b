from __future__ import annotations

import time

import pytest

from tests.aggregator.issuer import Issuer


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer(time.time())
