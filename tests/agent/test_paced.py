from __future__ import annotations

from pathlib import Path

from nodeguard.agent.paced import PacedMachine
from nodeguard.bundle.recording import Recording

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"


def test_a_recording_goes_on_with_the_clock_as_fast_as_asked() -> None:
    recording = Recording.open(str(FIXTURES / "gpu-gone"))
    clock = [100.0]
    machine = PacedMachine(recording, 60.0, clock=lambda: clock[0])
    began = machine.now()
    gpu = "/sys/bus/pci/devices/0000:61:00.0"
    assert gpu[-12:] in machine.names("/sys/bus/pci/devices")
    clock[0] += 2.5
    assert machine.now().mono - began.mono == 150.0
    assert gpu[-12:] not in machine.names("/sys/bus/pci/devices")
