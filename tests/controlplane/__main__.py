"""A cluster to try things on: `python -m tests.controlplane`, until interrupted."""

from __future__ import annotations

import signal
import sys
import time

from tests.controlplane.cluster import ClusterError, cluster
from tests.controlplane.programs import BuildError

if __name__ == "__main__":
    begun = time.monotonic()
    try:
        with cluster() as made:
            print(
                f"ready in {time.monotonic() - begun:.1f} s; `export KUBECONFIG={made.kubeconfig}`",
                flush=True,
            )
            signal.pause()
    except (ClusterError, BuildError) as why:
        sys.exit(str(why))
    except KeyboardInterrupt:
        print()
