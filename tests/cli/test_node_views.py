"""The pages of a node that is in its soak period, released, or stale."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.policy import Mode, Policy
from nodeguard.wire.report import Inventory, UnreadableTargets
from tests.cli.fleet_output import explained, page
from tests.fleet.scene import AT_ONCE, Fleet, finding, foreign

PORT = "port/mlx5_0/1"


def test_a_gpu_in_its_soak_period_on_a_partially_read_node() -> None:
    fleet = Fleet(2, Policy(mode=Mode.ENFORCE))
    fleet.publish(0)
    fleet.report(0, finding())
    fleet.change(0, taints=(foreign("nodeguard.dev/suspect", "x"),), unschedulable=True)
    fleet.after(10.0)
    fleet.carry_out()
    fleet.report(0)
    report = replace(fleet.reports["uid-0"], agent="0.1.0", data_status=DataStatus.UNKNOWN, unreadable=(UnreadableTargets("infiniband", "counters", "permission denied", (PORT,)),),
        inventory=Inventory(driver="580.82.07", platform="dgx-h100"))  # fmt: skip
    fleet.planner.record_report("uid-0", report, fleet.now)
    fleet.carry_out()
    fleet.after(30.0)
    fleet.carry_out()
    assert explained(fleet, 0) == page("""
    OK  node-0: tainted, but not by nodeguard (nodeguard.dev/suspect=x);
        quarantined, no new work: its gpu-0; cordoned by an operator.
      last report just now; part of the data is unknown
      runs        nodeguard 0.1.0, driver 580.82.07, dgx-h100
      hardware    8 GPUs; no pool
      taints      foreign nodeguard.dev taints, left unchanged:
                  nodeguard.dev/suspect=x

    QUARANTINE  gpu-lost - GPU 0000:3b:00, as device gpu-0
      component   GPU-1
      since       2023-11-14 22:13:30 UTC, 30 s ago
      waiting for the soak period to end, while gpu-lost continues to pass:
                  2023-11-14 22:23:30 UTC, in 9 min 30 s
      incident    node-0-gpu-0000-3b-00-21acaae0

      counts      against the limit of check gpu-lost, device gpu-0; set 30 s ago
      budgets     fleet 0 of 1, default pool 0 of 1, check gpu-lost 1 of 15 (in use,
                  of what is allowed at once)
      not read    infiniband of port mlx5_0/1: permission denied
    """)


def test_a_node_with_a_released_mark() -> None:
    fleet = Fleet(2, AT_ONCE)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0)
    fleet.carry_out()
    assert explained(fleet, 0) == page("""
    OK  node-0: all checks passed.
      last report just now
      hardware    8 GPUs; no pool

      released    gpu-lost at 2023-11-14 22:13:20 UTC; its next soak period is
                  longer
      budgets     fleet 0 of 2, default pool 0 of 2 (in use, of what is allowed at
                  once)
      resolved    node-0-gpu-0000-3b-00-21acaae0
    """)


def test_a_stale_node() -> None:
    fleet = Fleet(20)
    fleet.report(0, finding(health=Health.WARNING))
    fleet.reports.pop("uid-0")
    fleet.after(60.0)
    fleet.carry_out()
    assert explained(fleet, 0) == page("""
    UNKNOWN  node-0: not marked.
      last report 1 min ago; stale, health then: warning
      hardware    8 GPUs; no pool

    WARNING  gpu-lost - GPU 0000:3b:00
      message     gpu-lost at gpu/0000:3b:00
      component   GPU-1
      since       2023-11-14 22:12:20 UTC, 2 min ago
      evidence    nvml: gone
      mark        none: a warning marks nothing
      action      reset the GPU
      how         kubectl cordon node-0
                  POD=$(kubectl get pods -n nodeguard -l \\
                  app.kubernetes.io/name=nodeguard-agent --field-selector \\
                  spec.nodeName=node-0 -o name)
                  kubectl exec -n nodeguard "$POD" -- nodeguard gpus detach \\
                  --duration 30m --gpu 0000:3b:00.0
                  kubectl exec -n nodeguard "$POD" -- chroot /host nvidia-smi \\
                  --gpu-reset -i 0000:3b:00.0
                  kubectl exec -n nodeguard "$POD" -- nodeguard gpus attach
                  kubectl uncordon node-0
      see         nodeguard explain gpu-lost
      incident    node-0-gpu-0000-3b-00-21acaae0

      budgets     fleet 0 of 20, default pool 0 of 20 (in use, of what is allowed at
                  once)
    """)
    fleet.restart()
    fleet.carry_out()
    assert explained(fleet, 0) == page("""
    UNKNOWN  node-0: health unknown.
      last report none since this aggregator started: check that the agent runs and
                  reaches it
      hardware    8 GPUs; no pool

      budgets     fleet 0 of 20, default pool 0 of 20 (in use, of what is allowed at
                  once)
      incident    node-0-gpu-0000-3b-00-21acaae0 (open)
    """)
