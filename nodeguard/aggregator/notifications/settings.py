"""The notification file: the webhooks that receive changes of incidents, with their secrets from files."""

from __future__ import annotations

import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from nodeguard.config.file_version import FileVersion, require_version
from nodeguard.config.regular_file import read_regular_file
from nodeguard.config.yaml_document import YamlDocument, convert, load_yaml
from nodeguard.delivery.attempt import signing_key
from nodeguard.executors.owners import NodeOwners, OwnedNodes
from nodeguard.model.finding import Health
from nodeguard.model.policy import Name

WebhookFormat = Literal["json", "slack", "teams", "pagerduty"]

# The Events API v2 of PagerDuty.
PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"

_FileName = Annotated[str, Meta(min_length=1, max_length=4096)]

# Bytes of a file with a secret, and of one with certificates: a bundle of public authorities has 220 kB.
_SECRET_LIMIT = 4096
_CERTIFICATES_LIMIT = 1 << 20


class ReceiverSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A receiver in the file. url, urlFile: where to send. secretFile: the key of the signature.

    caFile: the authorities that may sign the receiver's certificate.
    """

    name: Name
    url: Annotated[str, Meta(max_length=2048)] = ""
    url_file: _FileName | None = None
    secret_file: _FileName | None = None
    ca_file: _FileName | None = None


class WebhookSpec(ReceiverSpec, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A webhook for incidents in the file. routingKeyFile: of PagerDuty. minHealth: the lowest health of an
    incident that is sent.
    """

    format: WebhookFormat = "json"
    routing_key_file: _FileName | None = None
    min_health: Literal["warning", "suspect", "fatal"] = "suspect"


class MarkWebhookSpec(ReceiverSpec, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A webhook for marks in the file; see ReceiverSpec. owns: the nodes that it owns: their marks are
    written nowhere else, and it receives no others. Without it, it receives the marks of all nodes beside
    their owners.
    """

    owns: OwnedNodes | None = None


class NotificationSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The notification file. version: of the file; another one is refused. webhooks: receive incidents.
    markWebhooks: receive the marks of nodes. spoolDirectory: where unsent notifications survive a restart.
    """

    version: FileVersion = 1
    webhooks: Annotated[tuple[WebhookSpec, ...], Meta(max_length=20)] = ()
    mark_webhooks: Annotated[tuple[MarkWebhookSpec, ...], Meta(max_length=20)] = ()
    spool_directory: _FileName | None = None


class MarkWebhook(Struct, frozen=True):
    """A receiver of marks with its secrets; see Webhook. owns: see MarkWebhookSpec. Never log url or
    secret.
    """

    name: str
    url: str
    secret: bytes = b""
    ca: str = ""
    owns: OwnedNodes | None = None


class Webhook(Struct, frozen=True):
    """A webhook with its secrets. secret: key of the signature, empty for none. ca: the authorities that
    may sign the receiver's certificate, in PEM; empty for those of the system. Never log url or secrets.
    """

    name: str
    format: WebhookFormat
    url: str
    secret: bytes
    routing_key: str
    min_health: Health
    ca: str = ""


class NotificationSettings(Struct, frozen=True):
    """The webhooks for incidents and for marks, and the directory of the spool; None for memory only."""

    webhooks: tuple[Webhook, ...]
    spool_directory: Path | None = None
    mark_webhooks: tuple[MarkWebhook, ...] = ()

    def owners(self) -> NodeOwners:
        """Return which webhook owns which nodes."""
        return NodeOwners((item.name, item.owns) for item in self.mark_webhooks if item.owns is not None)


def read_notifications(path: Path, *, standalone: bool = False) -> NotificationSettings:
    """Return the settings in a YAML file. Raises ConfigError with file, line, field and remedy. standalone:
    whether they are for the standalone mode, in which nodes have no labels, and one webhook owns all or none.
    """
    document = load_yaml(path)
    require_version(document)
    spec = convert(document, NotificationSpec)
    if not (spec.webhooks or spec.mark_webhooks):
        raise document.error((), "it has no receiver", "add one to webhooks or markWebhooks")
    names: set[str] = set()
    for field, receivers in (("webhooks", spec.webhooks), ("markWebhooks", spec.mark_webhooks)):
        for number, receiver in enumerate(receivers):
            if receiver.name in names:
                at = field, number, "name"
                raise document.error(at, f"'{receiver.name}' is used twice", "choose another name")
            names.add(receiver.name)
    for number, receiver in enumerate(spec.mark_webhooks):
        if standalone and receiver.owns not in (None, OwnedNodes()):
            at = "markWebhooks", number, "owns"
            raise document.error(at, "without Kubernetes a webhook owns all nodes or none", "write owns: {}")
    webhooks = tuple(
        _webhook(document, ("webhooks", number), webhook) for number, webhook in enumerate(spec.webhooks)
    )
    mark_webhooks = tuple(
        MarkWebhook(receiver.name, *_receiver(document, ("markWebhooks", number), receiver), receiver.owns)
        for number, receiver in enumerate(spec.mark_webhooks)
    )
    directory = _path(document, spec.spool_directory) if spec.spool_directory else None
    if directory is not None and not directory.is_dir():
        problem = f"{directory} is not a directory"
        raise document.error(("spoolDirectory",), problem, "create it, or remove this field")
    return NotificationSettings(webhooks, directory, mark_webhooks)


def _webhook(document: YamlDocument, at: tuple[str | int, ...], spec: WebhookSpec) -> Webhook:
    if (spec.format == "pagerduty") != bool(spec.routing_key_file):
        problem = "routingKeyFile belongs to the format pagerduty"
        raise document.error(at, problem, "set both, or neither")
    default = PAGERDUTY_URL if spec.format == "pagerduty" else ""
    url, secret, ca = _receiver(document, at, spec, default)
    routing_key = (
        _secret(document, (*at, "routingKeyFile"), spec.routing_key_file) if spec.routing_key_file else ""
    )
    return Webhook(spec.name, spec.format, url, secret, routing_key, Health(spec.min_health), ca)


def _receiver(
    document: YamlDocument, at: tuple[str | int, ...], spec: ReceiverSpec, default: str = ""
) -> tuple[str, bytes, str]:
    """Return the address of a receiver, the key of the signature, and its authorities. default: the address
    if the file has none.
    """
    field = "urlFile" if spec.url_file else "url"
    if spec.url and spec.url_file:
        raise document.error((*at, "url"), "url and urlFile exclude each other", "remove either")
    url = _secret(document, (*at, "urlFile"), spec.url_file) if spec.url_file else spec.url
    url = url or default
    if not url:
        raise document.error(at, "the webhook has no address", "set url, or urlFile if the address is secret")
    if not _is_url(url):
        problem = "the address is no URL: it has a space, a control character, a backslash or an invalid host"
        raise document.error((*at, field), problem, "correct the address")
    if not _is_safe(url):
        problem = "the address is neither https:// nor http:// on loopback"
        raise document.error((*at, field), problem, "use an address with https://")
    secret = _signature_secret(document, (*at, "secretFile"), spec.secret_file) if spec.secret_file else b""
    return url, secret, _certificates(document, (*at, "caFile"), spec.ca_file) if spec.ca_file else ""


def _signature_secret(document: YamlDocument, at: tuple[str | int, ...], name: str) -> bytes:
    """Return the secret of a signature, of which the key can be derived."""
    secret = _secret(document, at, name).encode()
    try:
        signing_key(secret)
    except ValueError:
        problem = f"{_path(document, name)} has no Base64 after whsec_"
        raise document.error(at, problem, "copy the secret again, whole") from None
    return secret


def _secret(document: YamlDocument, at: tuple[str | int, ...], name: str) -> str:
    """Return the one line of a file with a secret."""
    path, content = _read(document, at, name, _SECRET_LIMIT)
    try:
        text = content.decode().strip()
    except UnicodeDecodeError:
        raise document.error(at, f"{path} is no UTF-8", "save the file as UTF-8") from None
    if len(content) > _SECRET_LIMIT or not text or not text.isprintable():
        raise document.error(at, f"{path} does not have exactly one line of text", "write the secret only")
    return text


def _certificates(document: YamlDocument, at: tuple[str | int, ...], name: str) -> str:
    """Return the certificates of a file in PEM."""
    path, content = _read(document, at, name, _CERTIFICATES_LIMIT)
    text = content.decode("ascii", "replace")
    if len(content) > _CERTIFICATES_LIMIT or not _has_certificates(text):
        remedy = "write the certificate of the authority that signs the receiver's, in PEM"
        raise document.error(at, f"{path} has no usable certificates", remedy)
    return text


def _has_certificates(text: str) -> bool:
    if not (text and text.isascii()):  # a context without a text has the certificates of the system
        return False
    try:
        ssl.create_default_context(cadata=text)
    except ssl.SSLError:
        return False
    return True


def _read(document: YamlDocument, at: tuple[str | int, ...], name: str, limit: int) -> tuple[Path, bytes]:
    """Return the path and the content of a file, at most a byte more than the limit."""
    path = _path(document, name)
    try:
        return path, read_regular_file(path, limit + 1)
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}"
        raise document.error(at, problem, "name a readable file") from None


def _path(document: YamlDocument, name: str) -> Path:
    """Return the path of a name in the file: relative ones begin at its directory."""
    return Path(document.file).parent / name


def _is_url(url: str) -> bool:
    """Return whether a text can be an address: with others each request would fail."""
    try:
        (urlsplit(url).hostname or "").encode("idna")
    except ValueError:
        return False
    return url.isprintable() and not {" ", "\\"} & set(url)


def _is_safe(url: str) -> bool:
    """Return whether an address is encrypted, or on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    if parts.scheme == "https":
        return bool(host)
    try:
        return parts.scheme == "http" and (host == "localhost" or ip_address(host).is_loopback)
    except ValueError:
        return False
