"""Credentials of the cluster: the token file of the API server, and kubeconfigs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def write_tokens(path: Path, tokens: Mapping[str, str]) -> None:
    """Write the tokens by user. `admin` has all permissions, others those of the system component."""
    path.touch(mode=0o600)
    path.write_text(
        "".join(
            f"{token},admin,admin,system:masters\n" if user == "admin" else f"{token},system:{user},{user}\n"
            for user, token in tokens.items()
        )
    )


def write_kubeconfig(path: Path, url: str, ca: Path, token: str) -> None:
    path.touch(mode=0o600)
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "tests",
                "clusters": [{"name": "tests", "cluster": {"server": url, "certificate-authority": str(ca)}}],
                "users": [{"name": "tests", "user": {"token": token}}],
                "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
            }
        )
    )
