"""An agent of a world: its findings, with their true onset, and its messages as an aggregator decodes them."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.finding import Action, DataStatus, Health
from nodeguard.wire.encoding import decode_message, encode
from nodeguard.wire.report import (
    VERSION,
    Heartbeat,
    Inventory,
    Message,
    Report,
    ReportedEvidence,
    ReportedFinding,
    ReportedInjection,
    ReportedPassing,
)

_GPU, _OTHER_GPU, _PORT = "gpu/0000:3b:00", "gpu/0000:3c:00", "port/mlx5_0/1"
TARGETS = (_GPU, _OTHER_GPU, _PORT, "node")


def _finding(
    check: str,
    target: str,
    health: Health,
    topologies: tuple[str, ...] = (),
    sources: tuple[str, ...] = ("nvml",),
) -> ReportedFinding:
    return ReportedFinding(
        check, target, health, component=f"part of {target}", action=Action.RESET_GPU, family=check,
        message=f"{check} at {target}", topologies=topologies,
        evidence=tuple(ReportedEvidence(source, "seen") for source in sources),
    )  # fmt: skip


# Faults by name: of one node, of hardware that nodes share, of a version, and of a check of the site.
FAULTS: Mapping[str, ReportedFinding] = {
    "gpu-lost": _finding("gpu-lost", _GPU, Health.FATAL),
    "gpu-lost of another": _finding("gpu-lost", _OTHER_GPU, Health.FATAL),
    "gpu-ecc": _finding("gpu-ecc", _OTHER_GPU, Health.SUSPECT),
    "gpu-xid": _finding("gpu-xid", _GPU, Health.FATAL, sources=("kmsg", "nvml")),
    "gpu-warm": _finding("gpu-warm", _GPU, Health.WARNING, ("rack",)),
    "gpu-hot": _finding("gpu-hot", _GPU, Health.SUSPECT, ("rack",)),
    "port-down": _finding("port-down", _PORT, Health.FATAL, ("fabric",), ("infiniband",)),
    "port-flap": _finding("port-flap", _PORT, Health.SUSPECT, ("fabric",), ("infiniband",)),
    "port-link-downed": _finding("port-link-downed", _PORT, Health.WARNING, ("fabric",), ("infiniband",)),
    "power-low": _finding("power-low", "node", Health.SUSPECT, ("power",)),
    "driver-broken": _finding("driver-broken", "node", Health.FATAL, ("driver", "kernel")),
    "site-probe": _finding("site-probe", "node", Health.FATAL, (), ("probe",)),
}
CATALOGUE = tuple(sorted({finding.check for finding in FAULTS.values()} - {"site-probe"}))
_ALL = (*CATALOGUE, "site-probe")


class ActiveFault(Struct, frozen=True):
    """A finding of an agent. began: true seconds of the world's monotonic clock."""

    finding: ReportedFinding
    began: float


class WorldAgent:
    """The agent of one node.

    uid: of the Node that its token names. booted: when the boot began. faults: by check and target.
    injections: likewise, of faults that an operator injected. unread: whether its data is not fresh. down: since when
    it sends nothing; None while it does. kubelet_stops: whether its Node is about to be not ready. changes: counts its
    reports. sent: when it sent a heartbeat.
    """

    def __init__(self, number: int, uid: str, now: float) -> None:
        self.name, self.uid = f"node-{number}", uid
        self.boot, self.sequence, self.booted = 1, 0, now
        self.faults: dict[tuple[str, str], ActiveFault] = {}
        self.injections: dict[tuple[str, str], ActiveFault] = {}
        self.unread = False
        self.driver = "580.1"
        self.down: float | None = None
        self.kubelet_stops = False
        self.changes = 0
        self.sent = -inf

    @property
    def boot_id(self) -> str:
        """Return the id of the boot."""
        return f"{self.name} boot {self.boot}"

    def begin(self, name: str, now: float, health: Health | None = None) -> None:
        """Begin a fault, or change its severity; its onset stays."""
        finding = FAULTS[name]
        key = (finding.check, finding.target)
        began = self.faults[key].began if key in self.faults else now
        self.faults[key] = ActiveFault(replace(finding, health=health or finding.health), began)

    def inject(self, name: str, now: float) -> None:
        """Inject a fault, unless its check finds one."""
        finding = FAULTS[name]
        if all(check != finding.check for check, _ in self.faults):
            self.injections[finding.check, finding.target] = ActiveFault(finding, now)

    def end(self, name: str) -> None:
        """End a fault, or all; injected ones, too."""
        for faults in (self.faults, self.injections):
            keys = [key for key in faults if not name or key[0] == FAULTS[name].check]
            for key in keys:
                del faults[key]

    def restart(self, now: float) -> None:
        """Reboot: sequence numbers start again, and injected faults end."""
        self.injections.clear()
        self.boot, self.sequence, self.booted = self.boot + 1, 0, now
        self.sent = -inf

    def _count(self, now: float) -> None:
        """Count a message, and those between two turns: an agent sends one every 10 s at least."""
        self.sequence = max(self.sequence + 1, int((now - self.booted) / 10.0))

    def heartbeat(self, now: float) -> Message:
        """Return the next heartbeat."""
        self._count(now)
        return Heartbeat(
            version=VERSION, node=self.name, boot_id=self.boot_id, sequence=self.sequence, digest=self._digest
        )

    def report(self, now: float, age: float = 0.0, *, leaving: bool = False) -> Report:
        """Return the next report, as its reader decodes it. age: seconds since its verdict."""
        self._count(now)
        self.changes += 1
        status = DataStatus.UNKNOWN if self.unread else DataStatus.FRESH
        findings = tuple(
            replace(fault.finding, age=max(0.0, now - fault.began - age), data_status=status)
            for fault in self.faults.values()
        )
        injections = tuple(
            ReportedInjection(replace(fault.finding, age=max(0.0, now - fault.began - age)), "uid 0", 600.0)
            for fault in self.injections.values()
        )
        firing = {check for check, _ in self.faults}
        passing = tuple(check for check in _ALL if check not in firing)
        made = decode_message(encode(Report(
            version=VERSION, node=self.name, boot_id=self.boot_id, sequence=self.sequence, age=age,
            health=max((f.health for f in findings), key=lambda health: health.rank, default=Health.OK),
            data_status=status, digest=self._digest, agent="1.0", catalogue="1", findings=findings,
            inventory=Inventory(driver=self.driver, kernel="6.8"), leaving=leaving,
            passing=() if self.unread else (ReportedPassing(passing, TARGETS),), injections=injections,
        )))  # fmt: skip
        assert isinstance(made, Report)
        return made

    @property
    def _digest(self) -> str:
        return f"{self.boot_id} {self.changes}"
