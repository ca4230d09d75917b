"""Settings of the diagnosis with the fault classes of the catalogue, for tests."""

from __future__ import annotations

from typing import Any

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.model.diagnosis import DiagnosisPolicy

FAULT_CLASSES = load_catalogue()[0].fault_classes


def diagnosis_policy(**settings: Any) -> DiagnosisPolicy:
    """Return the default settings with the fault classes of the catalogue, and some changes."""
    return DiagnosisPolicy(**{"classes": FAULT_CLASSES, **settings})
