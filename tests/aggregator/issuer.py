"""An issuer of service account tokens like those of a cluster, and the document of its keys."""

from __future__ import annotations

import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

ISSUER = "https://kubernetes.default.svc"
ACCOUNT = "nodeguard:nodeguard-agent"
NOW = 1_800_000_000.0

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


class Issuer:
    """Signs with its latest key. The document has all keys that are not removed."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now
        self.keys: dict[str, Key] = {}
        self.renew("first")

    def renew(self, name: str, key: Key | None = None) -> None:
        self.keys[name] = key or rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def document(self) -> bytes:
        return json.dumps({"keys": [_public(name, key) for name, key in self.keys.items()]}).encode()

    def claims(self, node: str = "node-a", **changes: Any) -> dict[str, Any]:
        namespace, account = ACCOUNT.split(":")
        claims: dict[str, Any] = {
            "aud": ["nodeguard"],
            "exp": int(self.now) + 3600,
            "iat": int(self.now),
            "nbf": int(self.now),
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "kubernetes_io": {
                "namespace": namespace,
                "node": {"name": node, "uid": f"uid-of-{node}"},
                "pod": {"name": "agent-x", "uid": "uid-of-pod"},
                "serviceaccount": {"name": account, "uid": "uid-of-account"},
            },
        } | changes
        return {name.replace("_", "."): value for name, value in claims.items() if value is not None}

    def token(self, node: str = "node-a", *, key: str = "", **changes: Any) -> str:
        name = key or list(self.keys)[-1]
        return self.signed(self.claims(node, **changes), name)

    def signed(self, claims: dict[str, Any], name: str) -> str:
        key = self.keys[name]
        algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        # Unlike jwt.encode, this accepts the invalid claims of tests.
        return jwt.api_jws.encode(json.dumps(claims).encode(), key, algorithm, headers={"kid": name})


def _public(name: str, key: Key) -> dict[str, Any]:
    if isinstance(key, rsa.RSAPrivateKey):
        return RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": name, "use": "sig"}
    return ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": name, "use": "sig"}
