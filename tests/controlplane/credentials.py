"""Credentials of the cluster: the token file of the API server, and kubeconfigs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def write_tokens(path: Path, tokens: Mapping[str, str]) -> None:
    """Write the tokens by user. `admin` has all permissions, `node:NAME` those of a kubelet, others those of the
    system component.
    """
    path.touch(mode=0o600)
    path.write_text("".join(_line(user, token) for user, token in tokens.items()))


def _line(user: str, token: str) -> str:
    if user == "admin":
        return f"{token},admin,admin,system:masters\n"
    group = ",system:nodes" if user.startswith("node:") else ""
    return f"{token},system:{user},{user}{group}\n"


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
