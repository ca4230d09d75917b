"""Vital product data of ConnectX functions, which tells those that manage NVSwitches from network adapters.

On HGX and DGX boards of Blackwell the NVSwitches are not on the bus. Fabric Manager reaches them through a
few functions of a ConnectX adapter on the board. Class, ids and driver are those of a network adapter; only
the vital product data (VPD) differ: they have `SMDL=SW_MNG`. Source: nvidia-fabricmanager-start.sh.
"""

from __future__ import annotations

from nodeguard.sources.machine import Machine
from nodeguard.sources.readings import ABSENT, failure_reason

MANAGER_MARK = "SMDL=SW_MNG"
_MARK = MANAGER_MARK.partition("=")[2]

# Seconds of one round for VPD. A read takes milliseconds for each four bytes, at most 0.125 s where the
# device does not answer, and ends with SIGKILL. Source: Linux drivers/pci/vpd.c.
_TIME_LIMIT = 2.0


class NvswitchManagers:
    """Whether functions manage NVSwitches. Reads the VPD of each function once, also if that fails."""

    def __init__(self) -> None:
        # By address; an error is text, and None is a function without VPD.
        self._roles: dict[str, bool | str | None] = {}
        self._round_began = 0.0

    def begin_round(self, machine: Machine, addresses: frozenset[str]) -> None:
        """Forget functions that are gone. addresses: the functions on the bus."""
        self._roles = {address: role for address, role in self._roles.items() if address in addresses}
        self._round_began = machine.now().mono

    def is_manager(self, machine: Machine, path: str) -> bool | str | None:
        """Return whether the function at a path of sysfs manages NVSwitches, or the reason if unknown.

        None if the function has no VPD.
        """
        address = path.rpartition("/")[2]
        if address not in self._roles:
            if machine.now().mono - self._round_began > _TIME_LIMIT:
                return "its vital product data are read in a later round"
            self._roles[address] = _read(machine, f"{path}/vpd")
        return self._roles[address]


def _read(machine: Machine, path: str) -> bool | str | None:
    try:
        # The data are binary, and only root may read them.
        return _MARK in machine.read(path)
    except OSError as error:
        return None if error.errno in ABSENT else f"{path}: {failure_reason(error)}"


def public_vpd(text: str) -> str:
    """Return the part of VPD that a recording may hold: the rest has serial numbers."""
    return f"{MANAGER_MARK}\n" if _MARK in text else "\n"
