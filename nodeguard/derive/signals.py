"""The derived signals, with kind, description and unit."""

from __future__ import annotations

from nodeguard.model.signal import Signal, signals_by_name

SIGNALS = signals_by_name(
    Signal("pci.link.width_slot", "state", "lanes that the device and the port above it are capable of"),
    Signal("pci.link.slot", "state", "lanes of the port above the device, or `unknown`"),
    Signal("pci.link.width_alike", "state", "most lanes of another device of the same make on this node"),
    Signal(
        "pci.link.width_usual",
        "state",
        "lanes of most devices of the same make on this node, if they are at least four",
    ),
    Signal("driver.changing", "state", "whether the NVIDIA driver is being loaded, unloaded or changed"),
    Signal("gpu.bound", "state", "whether the GPU is bound to the NVIDIA driver, where that is loaded"),
    Signal("gpu.lost", "state", "whether the kernel knows the GPU and NVML does not"),
    Signal("gpu.refused", "state", "NVML's error where it counts the GPU and cannot open it"),
    Signal("gpu.seen_by", "state", "which enumerations list the GPU and which do not"),
    Signal("nvml.gpus_listed", "state", "GPUs that NVML lists"),
    Signal(
        "nvml.gpus_omitted",
        "state",
        "GPUs that the driver is bound to and NVML omits, where they are half of all or more",
    ),
    Signal("gpu.count", "state", "GPUs on the bus or in NVML's list"),
    Signal("gpu.busy", "state", "whether the GPU does work now"),
    Signal("gpu.clocks.share", "gauge", "SM clock as a share of its maximum", "ratio"),
    Signal(
        "gpu.trap.processes",
        "gauge",
        "processes of the last day that met Xid 13 in only one place of the GPU",
    ),
    Signal("gpu.trap.place", "state", "that place, a GPC and a TPC, or `several` where it is more than one"),
    Signal(
        "gpu.programs_died",
        "event",
        "several processes met an Xid of an application on this GPU, and none on another one since",
        fields=("verdict", "processes", "programs", "minutes", "others", "others_ran"),
    ),
    Signal("gpu.temperature.margin", "gauge", "degrees left to the GPU's slow-down", "celsius"),
    Signal("gpu.temperature.busy_margin", "gauge", "the same, of a GPU that does work now", "celsius"),
    Signal("gpu.memory.temperature_margin", "gauge", "degrees left to the memory's limit", "celsius"),
    Signal("gpu.fabric.ready", "state", "whether the GPU has joined its NVLink fabric"),
    Signal("gpu.fabric.registration", "state", "how far the GPU's registration with its NVLink fabric is"),
    Signal("gpu.fabric.domain", "state", "the GPU's NVLink domain, CLUSTER.CLIQUE, or `unset`"),
    Signal("gpu.fabric.of_rack", "state", "whether the NVSwitches of its fabric are elsewhere in the rack"),
    Signal("gpu.fabric.problem", "state", "the problem that the fabric reports for the GPU, or `none`"),
    Signal("fabric.problem_of_all", "state", "the problems of the fabric if each GPU reports one, or `none`"),
    Signal("fabric.tray_joined", "state", "whether any GPU of a tray has joined the fabric of its rack"),
    Signal("nvlink.down", "state", "whether a link is inactive that should be active"),
    Signal("nvlink.expected_links", "state", "active links that the GPU should have"),
    Signal("rdma.missing", "state", "whether an RDMA function has no RDMA device"),
    Signal("rdma.all_missing", "state", "whether no RDMA function has its RDMA device"),
    Signal("rdma.missing_count", "state", "RDMA functions without RDMA device"),
    Signal("port.expected", "state", "whether the port should be up"),
    Signal(
        "port.expected_by", "state", "the reference that expects it: platform, inventory, peers, or itself"
    ),
    Signal("port.lost_plane", "state", "whether the port is down and another plane of its adapter works"),
    Signal("port.planes", "state", "planes that an InfiniBand port uses together"),
    Signal("port.planes_lost", "state", "how many of these are down or slower than the others"),
    Signal("rdma.port_count", "state", "ports of all RDMA devices, without those that manage NVSwitches"),
    Signal(
        "port.wrong_layer",
        "state",
        "whether the port is of the make of the fabric's ports, of another link layer, and missed there",
    ),
    Signal("port.fabric_count", "state", "RDMA ports of the compute fabric's link layer"),
    *(
        Signal(
            f"gpu.xid.{topic}",
            "event",
            f"an Xid about {about}, decoded",
            fields=(
                "xid",
                "name",
                "summary",
                "response",
                "verdict",
                "action",
                "detail",
                "link",
                "reported_by_log",
                "pid",
                "process",
            ),
        )
        for topic, about in {
            "lost": "a GPU off the bus",
            "ecc": "memory errors",
            "repair": "memory repair",
            "gsp": "the GPU System Processor",
            "nvlink": "NVLink up to generation 4",
            "nvlink5": "NVLink 5",
            "recovery": "the driver's recovery action",
            "power": "power",
            "confidential": "confidential computing",
            "c2c": "the link to a Grace CPU",
            "pcie": "PCIe",
            "engine": "engines, channels and applications",
            "security": "a security fault",
            "test": "a test",
            "unlisted": "something that the table does not list",
        }.items()
    ),
    Signal(
        "cpu.machine_check",
        "event",
        "a machine check of a processor, decoded",
        fields=("severity", "cpu", "bank", "status"),
    ),
    Signal(
        "gpu.nvlink.recovered",
        "event",
        "NVML shows the GPU's NVLinks active and without a new error",
        fields=("recoverable",),
    ),
    Signal(
        "gpu.xid.ended", "event", "an Xid reports that the fault of another code is over", fields=("xid",)
    ),
    Signal("gpu.started", "event", "NVML reads a GPU that had failed to start; of the node: all of its GPUs"),
    Signal("gpu.reset_done", "event", "the driver asks for no recovery of any GPU any more"),
    Signal("nvlink.all_active", "event", "all GPUs have their NVLinks, after the driver had turned some off"),
    Signal("gpu.confidential_ready", "event", "the GPUs accept confidential work again"),
    Signal("gpu.recovery_none", "event", "the driver reports that no recovery is needed"),
    Signal(
        "nvswitch.cool", "event", "an NVSwitch reports that an alarm of temperature is over", fields=("sxid",)
    ),
    Signal(
        "nvswitch.sxid",
        "event",
        "an NVSwitch error, decoded",
        fields=("sxid", "summary", "verdict", "action", "severity", "block", "link"),
    ),
    Signal(
        "port.in_fabric", "state", "whether the port is one of the compute fabric that the platform knows"
    ),
    Signal("port.saturated", "state", "counters of the port that stand at their maximum, or `none`"),
    Signal(
        "port.saturated_alike",
        "state",
        "counters that stand at their maximum on all ports of the same firmware, or `none`",
    ),
    Signal("efa.silence", "gauge", "time since the device's latest heartbeat", "seconds"),
    Signal("fs.writable", "state", "whether the file system is mounted for writing"),
    Signal("fs.disk", "state", "target of the disk that the file system is on"),
    Signal(
        "disk.failed",
        "event",
        "a disk of this machine is gone, and no mount of the host is lost with it",
        fields=("dev",),
    ),
    Signal("volume.lost", "event", "a disk without a mount of the host is gone", fields=("dev",)),
    Signal(
        "volume.error",
        "event",
        "an error of a disk or file system without a mount of the host",
        fields=("dev",),
    ),
    Signal(
        "volume.timeout",
        "event",
        "a disk that is not known to be one of this machine did not answer a command in time",
        fields=("dev",),
    ),
    Signal(
        "volume.controller_down",
        "event",
        "the driver resets the controller of a remote disk that a mount of the host needs",
        fields=("dev",),
    ),
    Signal("service.role", "state", "role of a service: kubelet, runtime, fabric-manager, persistence, imex"),
    Signal("service.restarts", "counter", "starts of a service that were seen after the first"),
    Signal("fabric_manager.needed", "state", "whether the node needs nvidia-fabricmanager"),
    Signal("fabric_manager.running", "state", "whether nvidia-fabricmanager runs"),
)
