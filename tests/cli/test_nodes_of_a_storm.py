"""Nodes of a fleet with many faults, as they look."""

from __future__ import annotations

from tests.cli.fleet_output import explained, page
from tests.fleet.scene import Fleet


def test_a_marked_node(storm: Fleet) -> None:
    assert explained(storm, 2) == page("""
    FATAL  node-2: quarantined, no new work: gpu-ecc, gpu-lost.
      last report just now
      hardware    8 GPUs; no pool
      domains     rack/r0

    FATAL  gpu-lost - GPU 0000:3b:00
      message     GPU 0000:3b:00 has fallen off the bus: Xid 79
      component   GPU-1
      since       2023-11-14 22:24:10 UTC, 2 min 10 s ago
      evidence    nvml: gone
      mark        quarantine, set 2023-11-14 22:26:20 UTC, just now
      waiting for gpu-lost to pass (still failing)
      action      reset the GPU
      how         # This empties all GPUs of the node:
                  kubectl drain node-2 --ignore-daemonsets --delete-emptydir-data
                  POD=$(kubectl get pods -n nodeguard -l \\
                  app.kubernetes.io/name=nodeguard-agent --field-selector \\
                  spec.nodeName=node-2 -o name)
                  kubectl exec -n nodeguard "$POD" -- nodeguard gpus detach \\
                  --duration 30m --gpu 0000:3b:00.0
                  kubectl exec -n nodeguard "$POD" -- chroot /host nvidia-smi \\
                  --gpu-reset -i 0000:3b:00.0
                  kubectl exec -n nodeguard "$POD" -- nodeguard gpus attach
                  kubectl uncordon node-2
      see         nodeguard explain gpu-lost
      incident    node-2-gpu-0000-3b-00-eafa7dfb

    QUARANTINE  gpu-ecc - GPU 0000:3c:00
      component   GPU-1
      since       2023-11-14 22:13:30 UTC, 12 min 50 s ago
      waiting for gpu-ecc to pass on GPU 0000:3c:00 with fresh data
      incident    node-2-gpu-0000-3c-00-356027bb

      counts      against the limit of check gpu-ecc; set 12 min 50 s ago
      budgets     fleet 8 of 375, default pool 5 of 375, rack/r0 2 of 2, check
                  gpu-ecc 1 of 15 (in use, of what is allowed at once)
    """)


def test_a_node_with_a_withheld_mark(storm: Fleet) -> None:
    assert explained(storm, 7) == page("""
    FATAL  node-7: not marked (gpu-lost): the node is on hold: alice debugs it.
      last report just now
      hardware    8 GPUs; pool training
      domains     rack/r0
      hold        alice debugs it; nodeguard changes nothing here

    FATAL  gpu-lost - GPU 0000:3b:00
      message     GPU 0000:3b:00 has fallen off the bus: Xid 79
      component   GPU-1
      since       2023-11-14 22:24:10 UTC, 2 min 10 s ago
      evidence    nvml: gone
      mark        withheld: the node is on hold: alice debugs it
      action      reset the GPU
      how         # This empties all GPUs of the node:
                  kubectl drain node-7 --ignore-daemonsets --delete-emptydir-data
                  POD=$(kubectl get pods -n nodeguard -l \\
                  app.kubernetes.io/name=nodeguard-agent --field-selector \\
                  spec.nodeName=node-7 -o name)
                  kubectl exec -n nodeguard "$POD" -- nodeguard gpus detach \\
                  --duration 30m --gpu 0000:3b:00.0
                  kubectl exec -n nodeguard "$POD" -- chroot /host nvidia-smi \\
                  --gpu-reset -i 0000:3b:00.0
                  kubectl exec -n nodeguard "$POD" -- nodeguard gpus attach
                  kubectl uncordon node-7
      see         nodeguard explain gpu-lost
      incident    node-7-gpu-0000-3b-00-12be22f3

      budgets     fleet 8 of 375, pool training 3 of 375, rack/r0 2 of 2 (in use, of
                  what is allowed at once)
    """)


def test_a_healthy_node(storm: Fleet) -> None:
    assert explained(storm, 5000) == page("""
    OK  node-5000: all checks passed.
      last report just now
      hardware    8 GPUs; no pool
      domains     rack/r625

      budgets     fleet 8 of 375, default pool 5 of 375, rack/r625 0 of 2 (in use,
                  of what is allowed at once)
    """)
