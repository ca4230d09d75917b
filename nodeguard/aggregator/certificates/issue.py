"""Issues certificates: of an authority, and serving certificates, with keys that make handshakes cheap."""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from nodeguard.aggregator.certificates.serving_certificate import ServingCertificate
from nodeguard.model.instant import rfc3339

HOUR = 3600.0
DAY = 24 * HOUR

# Seconds: lifetime of an authority and of a serving certificate. The replacement of an authority interrupts
# agents: it is left to operators, and not needed in the life of a cluster.
AUTHORITY_LIFETIME = 3650 * DAY
SERVING_LIFETIME = 7 * DAY

# Seconds by which a client's clock may be slow.
_CLOCK_SKEW = HOUR

# Begin of an authority, in seconds since 1970: the clock may be ahead when it is created. Agents trust this
# very certificate: a later begin protects from nothing.
_AUTHORITY_BEGIN = 0.0

# Without the authority that they trust, agents accept no aggregator.
UNUSABLE_REMEDY = "restore a copy, or delete it and give agents the new certificate of the authority"

_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9-]+(\.[a-z0-9-]+)*\Z", re.ASCII | re.IGNORECASE)


class CertificateAuthority(Struct, frozen=True):
    """A certificate authority. certificate, key: in PEM. created_at, expires_at: in seconds since 1970."""

    certificate: str
    key: str
    created_at: float
    expires_at: float
    published_at: float = 0.0
    """For aggregators of earlier versions, which would store it if it were missing."""

    def __repr__(self) -> str:
        return f"CertificateAuthority(until={self.expires_at!r})"


class SigningError(Exception):
    """The certificate cannot be signed. The message has the reason and the remedy."""


class InvalidHostError(Exception):
    """A host name or address is invalid. The message has the remedy."""


def issue_authority(now: float, lifetime: float = AUTHORITY_LIFETIME) -> CertificateAuthority:
    """Issue a new certificate authority. now: seconds since 1970; lifetime: seconds."""
    key = ec.generate_private_key(ec.SECP256R1())
    number = x509.random_serial_number()
    name = _named(f"nodeguard {number:040x}"[:30])
    builder = (
        _builder(name, name, key.public_key(), number, _AUTHORITY_BEGIN, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    signed = builder.sign(key, hashes.SHA256())
    return CertificateAuthority(_pem(signed), _key_pem(key), now, _end(signed), published_at=now)


def issue_serving_certificate(
    by: CertificateAuthority, hosts: Sequence[str], now: float
) -> ServingCertificate:
    """Issue a certificate for a server. hosts: names and addresses; now: in seconds.

    Raises SigningError if the authority is unusable, and InvalidHostError.
    """
    try:
        issuer = x509.load_pem_x509_certificate(by.certificate.encode())
        signing = serialization.load_pem_private_key(by.key.encode(), None)
    except (ValueError, TypeError):
        raise SigningError(f"the authority's certificate or key is invalid: {UNUSABLE_REMEDY}") from None
    if not isinstance(signing, ec.EllipticCurvePrivateKey) or issuer.public_key() != signing.public_key():
        raise SigningError(f"the authority's key does not match its certificate: {UNUSABLE_REMEDY}")
    if now < (begin := issuer.not_valid_before_utc.timestamp()):
        clock = f"it is {rfc3339(now)} by the clock of this machine: set that clock if it is wrong, else"
        raise SigningError(f"it is not valid before {rfc3339(begin)}, and {clock} delete it")
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + SERVING_LIFETIME, _end(issuer))
    builder = (
        _builder(
            _named("nodeguard-aggregator"),
            issuer.subject,
            key.public_key(),
            x509.random_serial_number(),
            now - _CLOCK_SKEW,
            until,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(subject_alternative_names(hosts), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
    )
    return ServingCertificate(
        _pem(builder.sign(signing, hashes.SHA256())),
        _key_pem(key),
        expires_at=until,
        authority_expires_at=_end(issuer),
    )


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    number: int,
    begin: float,
    end: float,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(number)
        .not_valid_before(datetime.datetime.fromtimestamp(begin, datetime.UTC))
        .not_valid_after(datetime.datetime.fromtimestamp(end, datetime.UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def subject_alternative_names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    """Names and addresses as a certificate has them. Raises InvalidHostError."""
    if not hosts:
        raise InvalidHostError(
            "the certificate has no host name: set --cert-host to the name by which agents reach this server"
        )
    return x509.SubjectAlternativeName([_host(host) for host in hosts])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _NAME.match(host):
            raise InvalidHostError(f"{host!r} is no host's name or address: correct it") from None
        return x509.DNSName(host)


def _end(certificate: x509.Certificate) -> float:
    return certificate.not_valid_after_utc.timestamp()


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
