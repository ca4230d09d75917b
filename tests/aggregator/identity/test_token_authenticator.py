"""Tokens, verified at a moment that is given; keys that come, go, and cannot be had."""

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

EXPECTED = TokenRequirements(frozenset({ACCOUNT}))
MADE = Issuer()


def shown(token: str) -> PresentedCredentials:
    return PresentedCredentials(f"Bearer {token}")


class Scene:
    """A cluster that can be out of reach; mono: a clock that never jumps."""

    def __init__(self) -> None:
        self.issuer = Issuer()
        self.mono = 0.0
        self.fetched = 0
        self.away = False
        self.told: list[str] = []
        self.keyring = SigningKeyring(self._fetch, self.told.append)
        self.tokens = TokenAuthenticator(EXPECTED, self.keyring, lambda: self.mono)

    async def _fetch(self) -> tuple[str, bytes]:
        self.fetched += 1
        if self.away:
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


def test_what_a_token_is_signed_by_is_decided_by_the_key_alone() -> None:
    known = parse_signing_keys(ISSUER, MADE.document())
    plain = jwt.encode(MADE.claims(), "", "none", headers={"kid": "first"})
    shared = jwt.encode(MADE.claims(), "secret" * 10, "HS256", headers={"kid": "first"})
    curve = jwt.encode(
        MADE.claims(), ec.generate_private_key(ec.SECP256R1()), "ES256", headers={"kid": "first"}
    )
    stronger = jwt.encode(MADE.claims(), MADE.keys["first"], "RS512", headers={"kid": "first"})
    for token in (plain, shared, curve, stronger):
        with pytest.raises(RequestRefusedError, match=r"signature|not a service account token"):
            verify_token(bearer_token(f"Bearer {token}"), known, EXPECTED, NOW)


@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda raw: raw.decode("latin-1")))
def test_any_header_is_refused_in_words(header: str) -> None:
    with pytest.raises(RequestRefusedError, match="token"):
        key_id(bearer_token(header))


JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)  # fmt: skip


@given(
    st.sampled_from(["aud", "exp", "nbf", "iss", "sub", "kubernetes_io"]),
    JSON.filter(lambda one: one is not None),
)
def test_any_claim_that_is_wrong_is_refused_or_names_no_node(name: str, value: Any) -> None:
    token = MADE.token(**{name: value})
    try:
        claims = verify_token(token, parse_signing_keys(ISSUER, MADE.document()), EXPECTED, NOW)
    except RequestRefusedError:
        return
    assert name in {"nbf", "exp"} or not claims.node


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b'{"keys": {}}', b'{"keys": []}', b'{"keys": [1]}', b'{"keys": [{"kid": "a"}]}', b"x" * 300_000,
     b'{"keys": [{"kid": "a", "kty": "oct", "k": "c2VjcmV0"}]}', b'{"keys": [{"kid": "a", "kty": "RSA", "n": 1}]}'],
)  # fmt: skip
def test_a_document_without_keys_is_none(document: bytes) -> None:
    with pytest.raises(KeysError):
        parse_signing_keys(ISSUER, document)


def test_a_short_key_is_of_no_use() -> None:
    issuer = Issuer()
    issuer.renew("short", rsa.generate_private_key(public_exponent=65537, key_size=1024))
    assert list(parse_signing_keys(ISSUER, issuer.document()).by_id) == ["first"]


async def test_a_token_is_verified_once_until_it_expires() -> None:
    scene = Scene()
    token = shown(scene.issuer.token())
    assert scene.tokens.cached(token, NOW) is None
    found = await scene.tokens.authenticate(token, NOW)
    assert found == VerifiedIdentity(("node-a",), "uid-of-node-a", NOW + 3630)
    assert scene.tokens.cached(token, NOW + 3629) == found
    assert scene.tokens.cached(token, NOW + 3630) is None
    with pytest.raises(RequestRefusedError, match="expired"):
        await scene.tokens.authenticate(token, NOW + 3630)


async def test_a_new_key_is_asked_for_at_most_every_ten_seconds() -> None:
    scene = Scene()
    await scene.tokens.authenticate(shown(scene.issuer.token()), NOW)
    scene.issuer.renew("second")
    stranger = Issuer()
    stranger.renew("unheard-of")
    for _ in range(20):
        with pytest.raises(RequestRefusedError, match="not one of this cluster's"):
            await scene.tokens.authenticate(shown(stranger.token()), NOW)
    assert scene.fetched == 1
    scene.mono = 10.0
    assert (await scene.tokens.authenticate(shown(scene.issuer.token()), NOW)).node_names == ("node-a",)
    assert scene.fetched == 2


async def test_a_key_that_was_withdrawn_is_good_no_more() -> None:
    scene = Scene()
    token = shown(scene.issuer.token())
    await scene.tokens.authenticate(token, NOW)
    scene.issuer.renew("second")
    del scene.issuer.keys["first"]
    scene.mono = 301.0
    assert scene.keyring.is_due(scene.mono)
    await scene.keyring.refresh(scene.mono)
    assert scene.tokens.cached(token, NOW) is None
    with pytest.raises(RequestRefusedError, match="not one of this cluster's"):
        await scene.tokens.authenticate(token, NOW)


async def test_keys_stay_good_while_the_cluster_is_out_of_reach() -> None:
    scene = Scene()
    await scene.tokens.authenticate(shown(scene.issuer.token()), NOW)
    scene.away = True
    for scene.mono in (301.0, 700.0):
        await scene.keyring.refresh(scene.mono)
    assert (await scene.tokens.authenticate(shown(scene.issuer.token("node-b")), NOW)).node_names == (
        "node-b",
    )
    assert scene.told == [
        "cannot read the cluster's signing keys: it is out of reach; the previous keys stay in use"
    ]


async def test_without_signing_keys_agents_wait() -> None:
    scene = Scene()
    scene.away = True
    with pytest.raises(RequestRefusedError, match="has no signing keys of the cluster yet") as error:
        await scene.tokens.authenticate(shown(scene.issuer.token()), NOW)
    assert (error.value.status, error.value.retry_after) == (503, 5.0)
    assert scene.fetched == 1


@pytest.mark.parametrize(
    "named", [{}, {"node": {"name": "Node A", "uid": "u"}}, {"node": {"name": "node-a"}}]
)
async def test_a_token_without_a_node_claim_is_refused_with_a_remedy(named: dict[str, Any]) -> None:
    scene = Scene()
    pod = {"pod": {"name": "agent", "uid": "pod-uid"}}
    token = shown(scene.issuer.token(kubernetes_io={"namespace": "nodeguard", **pod, **named}))
    with pytest.raises(RequestRefusedError, match=r"Kubernetes 1\.30 or newer") as error:
        await scene.tokens.authenticate(token, NOW)
    assert error.value.status == 403
    assert scene.tokens.cached(token, NOW) is None


def test_what_was_shown_is_in_no_word_of_it() -> None:
    assert "secret" not in repr(PresentedCredentials("Bearer secret"))


@pytest.mark.parametrize("name", ["", "Node", "a/b", "a..b", "-a", "a" * 300, "a\nb", "*.example"])
def test_a_name_that_no_node_has_speaks_for_none(name: str) -> None:
    with pytest.raises(RequestRefusedError, match="set the agent's `node`"):
        authorize(VerifiedIdentity(None), name)


def test_a_header_that_is_too_deep_is_refused() -> None:
    deep = base64.urlsafe_b64encode(b"[" * 4000).decode().rstrip("=")
    with pytest.raises(RequestRefusedError):
        key_id(bearer_token(f"Bearer {deep}.e.s"))
    known = parse_signing_keys(ISSUER, MADE.document())
    missing = (
        base64.urlsafe_b64encode(json.dumps({"kid": "nobody", "alg": "RS256"}).encode()).decode().rstrip("=")
    )
    with pytest.raises(UnknownKeyError):
        verify_token(f"{missing}.e30.AAAA", known, EXPECTED, NOW)
