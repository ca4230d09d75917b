"""A cluster for manual tests: `python -m tests.controlplane` runs it until it is interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from tests.controlplane.cluster import ClusterError, cluster
from tests.controlplane.programs import BuildError

if __name__ == "__main__":
    argparse.ArgumentParser(
        prog="python -m tests.controlplane",
        description="Run etcd, an API server, the controllers and the scheduler until Ctrl-C, and print the "
        "KUBECONFIG of the cluster. The first run builds or downloads the programs. No nodes, no kubelet.",
    ).parse_args()
    started = time.monotonic()
    try:
        with cluster() as running:
            print(
                f"ready in {time.monotonic() - started:.1f} s; `export KUBECONFIG={running.kubeconfig}`",
                flush=True,
            )
            signal.pause()
    except (ClusterError, BuildError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        print()
