"""Verification of tokens at a given time, and refresh of the signing keys."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.aggregator.identity.caller import (
    PresentedCredentials,
    RequestRefusedError,
    VerifiedIdentity,
    authorize,
)
from nodeguard.aggregator.identity.signing_keys import (
    KeysError,
    KeysUnavailableError,
    SigningKeyring,
    parse_signing_keys,
)
from nodeguard.aggregator.identity.token import (
    TokenRequirements,
    UnknownKeyError,
    bearer_token,
    key_id,
    verify_token,
)
from nodeguard.aggregator.identity.token_authenticator import TokenAuthenticator
from tests.aggregator.issuer import ACCOUNT, ISSUER, NOW, Issuer
from tests.logs import LogLines

EXPECTED = TokenRequirements(frozenset({ACCOUNT}))
STANDARD = Issuer()


def presented(token: str) -> PresentedCredentials:
    return PresentedCredentials(f"Bearer {token}")


class Scene:
    """A cluster that a test can make unreachable. mono: a monotonic clock."""

    def __init__(self) -> None:
        self.issuer = Issuer()
        self.mono = 0.0
        self.fetched = 0
        self.is_unreachable = False
        self.keyring = SigningKeyring(self._fetch)
        self.tokens = TokenAuthenticator(EXPECTED, self.keyring, lambda: self.mono)

    async def _fetch(self) -> tuple[str, bytes]:
        self.fetched += 1
        if self.is_unreachable:
            raise KeysUnavailableError("it is out of reach")
        return ISSUER, self.issuer.document()


@pytest.mark.parametrize("key", [None, ec.generate_private_key(ec.SECP256R1())])
def test_a_good_token_names_its_node(key: ec.EllipticCurvePrivateKey | None) -> None:
    issuer = Issuer()
    issuer.renew("newest", key)
    claims = verify_token(
        issuer.token("gpu-0417.example"), parse_signing_keys(ISSUER, issuer.document()), EXPECTED, NOW
    )
    assert (claims.node, claims.uid) == ("gpu-0417.example", "uid-of-gpu-0417.example")
    assert claims.expires_at == NOW + 3600


def test_the_algorithm_of_a_token_is_that_of_its_key() -> None:
    keys = parse_signing_keys(ISSUER, STANDARD.document())
    plain = jwt.encode(STANDARD.claims(), "", "none", headers={"kid": "first"})
    shared = jwt.encode(STANDARD.claims(), "secret" * 10, "HS256", headers={"kid": "first"})
    curve = jwt.encode(
        STANDARD.claims(), ec.generate_private_key(ec.SECP256R1()), "ES256", headers={"kid": "first"}
    )
    stronger = jwt.encode(STANDARD.claims(), STANDARD.keys["first"], "RS512", headers={"kid": "first"})
    for token in (plain, shared, curve, stronger):
        with pytest.raises(RequestRefusedError, match=r"signature|not a service account token"):
            verify_token(bearer_token(f"Bearer {token}"), keys, EXPECTED, NOW)


@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda raw: raw.decode("latin-1")))
def test_any_invalid_header_is_refused_with_a_message(header: str) -> None:
    with pytest.raises(RequestRefusedError, match="token"):
        key_id(bearer_token(header))


JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)  # fmt: skip


@given(
    st.sampled_from(["aud", "exp", "nbf", "iss", "sub", "kubernetes_io"]),
    JSON.filter(lambda value: value is not None),
)
def test_any_invalid_claim_is_refused_or_names_no_node(name: str, value: Any) -> None:
    token = STANDARD.token(**{name: value})
    try:
        claims = verify_token(token, parse_signing_keys(ISSUER, STANDARD.document()), EXPECTED, NOW)
    except RequestRefusedError:
        return
    assert name in {"nbf", "exp"} or not claims.node


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b'{"keys": {}}', b'{"keys": []}', b'{"keys": [1]}', b'{"keys": [{"kid": "a"}]}', b"x" * 300_000,
     b'{"keys": [{"kid": "a", "kty": "oct", "k": "c2VjcmV0"}]}', b'{"keys": [{"kid": "a", "kty": "RSA", "n": 1}]}'],
)  # fmt: skip
def test_a_document_without_keys_is_refused(document: bytes) -> None:
    with pytest.raises(KeysError):
        parse_signing_keys(ISSUER, document)


def test_a_short_key_is_ignored() -> None:
    issuer = Issuer()
    issuer.renew("short", rsa.generate_private_key(public_exponent=65537, key_size=1024))
    assert list(parse_signing_keys(ISSUER, issuer.document()).by_id) == ["first"]


async def test_a_token_is_verified_once_until_it_expires() -> None:
    scene = Scene()
    token = presented(scene.issuer.token())
    assert scene.tokens.cached(token, NOW) is None
    identity = await scene.tokens.authenticate(token, NOW)
    assert identity == VerifiedIdentity(("node-a",), "uid-of-node-a", NOW + 3630)
    assert scene.tokens.cached(token, NOW + 3629) == identity
    assert scene.tokens.cached(token, NOW + 3630) is None
    with pytest.raises(RequestRefusedError, match="expired"):
        await scene.tokens.authenticate(token, NOW + 3630)


async def test_the_keys_are_read_for_an_unknown_key_at_most_every_ten_seconds() -> None:
    scene = Scene()
    await scene.tokens.authenticate(presented(scene.issuer.token()), NOW)
    scene.issuer.renew("second")
    other = Issuer()
    other.renew("unknown")
    for _ in range(20):
        with pytest.raises(RequestRefusedError, match="not one of this cluster's"):
            await scene.tokens.authenticate(presented(other.token()), NOW)
    assert scene.fetched == 1
    scene.mono = 10.0
    assert (await scene.tokens.authenticate(presented(scene.issuer.token()), NOW)).node_names == ("node-a",)
    assert scene.fetched == 2


async def test_the_tokens_of_a_removed_key_are_refused() -> None:
    scene = Scene()
    token = presented(scene.issuer.token())
    await scene.tokens.authenticate(token, NOW)
    scene.issuer.renew("second")
    del scene.issuer.keys["first"]
    scene.mono = 301.0
    assert scene.keyring.is_due(scene.mono)
    await scene.keyring.refresh(scene.mono)
    assert scene.tokens.cached(token, NOW) is None
    with pytest.raises(RequestRefusedError, match="not one of this cluster's"):
        await scene.tokens.authenticate(token, NOW)


async def test_keys_stay_valid_while_the_cluster_is_unreachable(log: LogLines) -> None:
    scene = Scene()
    await scene.tokens.authenticate(presented(scene.issuer.token()), NOW)
    scene.is_unreachable = True
    for scene.mono in (301.0, 700.0):
        await scene.keyring.refresh(scene.mono)
    assert (await scene.tokens.authenticate(presented(scene.issuer.token("node-b")), NOW)).node_names == (
        "node-b",
    )
    assert log.text() == [
        (
            "WARNING cannot read the cluster's signing keys error=it is out of reach "
            "effect=the previous keys stay in use"
        )
    ]
    scene.is_unreachable = False
    await scene.keyring.refresh(1100.0)
    assert log.text()[1:] == ["INFO the cluster's signing keys can be read again"]


async def test_without_signing_keys_agents_wait() -> None:
    scene = Scene()
    scene.is_unreachable = True
    with pytest.raises(RequestRefusedError, match="has no signing keys of the cluster yet") as error:
        await scene.tokens.authenticate(presented(scene.issuer.token()), NOW)
    assert (error.value.status, error.value.retry_after) == (503, 5.0)
    assert scene.fetched == 1


@pytest.mark.parametrize(
    "named", [{}, {"node": {"name": "Node A", "uid": "u"}}, {"node": {"name": "node-a"}}]
)
async def test_a_token_without_a_node_claim_is_refused_with_a_remedy(named: dict[str, Any]) -> None:
    scene = Scene()
    pod = {"pod": {"name": "agent", "uid": "pod-uid"}}
    token = presented(scene.issuer.token(kubernetes_io={"namespace": "nodeguard", **pod, **named}))
    with pytest.raises(RequestRefusedError, match=r"Kubernetes 1\.30 or newer") as error:
        await scene.tokens.authenticate(token, NOW)
    assert error.value.status == 403
    assert scene.tokens.cached(token, NOW) is None


def test_the_repr_of_credentials_has_no_secret() -> None:
    assert "secret" not in repr(PresentedCredentials("Bearer secret"))


@pytest.mark.parametrize("name", ["", "Node", "a/b", "a..b", "-a", "a" * 300, "a\nb", "*.example"])
def test_an_invalid_node_name_is_refused(name: str) -> None:
    with pytest.raises(RequestRefusedError, match="set the agent's `node`"):
        authorize(VerifiedIdentity(None), name)


def test_a_deeply_nested_header_is_refused() -> None:
    deep = base64.urlsafe_b64encode(b"[" * 4000).decode().rstrip("=")
    with pytest.raises(RequestRefusedError):
        key_id(bearer_token(f"Bearer {deep}.e.s"))
    keys = parse_signing_keys(ISSUER, STANDARD.document())
    missing = (
        base64.urlsafe_b64encode(json.dumps({"kid": "none", "alg": "RS256"}).encode()).decode().rstrip("=")
    )
    with pytest.raises(UnknownKeyError):
        verify_token(f"{missing}.e30.AAAA", keys, EXPECTED, NOW)
