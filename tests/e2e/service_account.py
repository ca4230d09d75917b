"""A program that runs nodeguard as in a pod, with a directory of the test as its mounted service account.

service_account.py DIRECTORY ARGUMENT...    DIRECTORY: with the files `token` and `ca.crt`

With a kubeconfig, the aggregator would import the client library, which takes a third of its start.
"""

from __future__ import annotations

import sys

from nodeguard.kube import pod_credentials

if __name__ == "__main__":
    from nodeguard.cli.main import main

    pod_credentials.DIRECTORY = sys.argv[1]
    sys.exit(main(sys.argv[2:]))
