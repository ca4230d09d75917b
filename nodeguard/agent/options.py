"""The options of an agent, and the file that sets them; a command line option overrides the file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from nodeguard.agent.reporting.endpoint import ADDRESS_REMEDY, AddressError, parse_address
from nodeguard.config.yaml_document import YamlDocument, read_yaml

# Without NUL, which no file name can contain.
Text = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\0]*$")]
_OptionalText = Annotated[str, Meta(max_length=4096, pattern=r"^[^\0]*$")]


LogFormat = Literal["auto", "text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


class ReportingOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Which aggregators get reports, and how this node authenticates.

    It uses the token in a file or, without Kubernetes, a certificate and its key in files; neither if every
    address is plain http. addresses: valid ones. ca_file: the CAs to trust instead of those of the system.
    """

    addresses: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=4)]
    token_file: _OptionalText = ""
    ca_file: _OptionalText = ""
    certificate_file: _OptionalText = ""
    key_file: _OptionalText = ""


class CommonOptions(Struct, frozen=True):
    """The options that the file and the command line have in one form.

    state: a directory, empty for none. socket: path of the local socket, empty for none. socket_group: its
    members may read the status there, empty for none. runbook_url_base: what precedes the id of a
    check in the address of its page, empty for the pages of the project. allow_injection: whether operators
    may inject faults without an aggregator; with one, its policy decides. aggregator: None without an
    aggregator.
    """

    state: _OptionalText = ""
    node: _OptionalText = ""
    checks: tuple[Text, ...] = ()
    platform: _OptionalText = ""
    instance_type: _OptionalText = ""
    socket: _OptionalText = ""
    socket_group: _OptionalText = ""
    runbook_url_base: _OptionalText = ""
    log_format: LogFormat = "auto"
    log_level: LogLevel = "info"
    allow_injection: bool = False
    aggregator: ReportingOptions | None = None


class OptionsFile(CommonOptions, frozen=True, forbid_unknown_fields=True):
    """The content of the file; a missing setting has the default of its option."""

    listen: _OptionalText = ""
    spread: _OptionalText = ""


class AgentOptions(CommonOptions, frozen=True, kw_only=True):
    """The options of an agent.

    config: path of the options file, empty for none. from_file: names of the settings that the file sets.
    listen: host and port. state: absolute. spread: seconds. root: the directory that is the machine's root.
    bundle: a recording instead of this machine.
    """

    config: str
    from_file: frozenset[str]
    listen: tuple[str, int]
    spread: float
    once: bool
    root: str
    bundle: str | None
    speed: float

    def setting_name(self, setting: str) -> str:
        """Return a setting as the user wrote it: with its file, or as a command line option."""
        is_in_file = setting in self.from_file
        return f"{self.config}: {setting}" if is_in_file else f"--{setting.replace('_', '-')}"


def read_options_file(path: str) -> OptionsFile:
    """Return the settings in a file. Raises ConfigError with file, line, field and remedy."""
    located, settings = read_yaml(Path(path), OptionsFile, hidden=("aggregator",))
    if (aggregator := settings.aggregator) is not None:
        _check_addresses(located, aggregator)
        _check_authentication(located, aggregator)
    return settings


def _check_addresses(located: YamlDocument, aggregator: ReportingOptions) -> None:
    """Raise ConfigError for the first invalid address."""
    for index, address in enumerate(aggregator.addresses):
        try:
            parse_address(address)
        except AddressError as error:
            raise located.error(("aggregator", "addresses", index), str(error), ADDRESS_REMEDY) from None


def _check_authentication(located: YamlDocument, aggregator: ReportingOptions) -> None:
    """Raise ConfigError unless exactly one way of authentication is configured."""
    has_certificate = bool(aggregator.certificate_file), bool(aggregator.key_file)
    if any(has_certificate) and not all(has_certificate):
        missing = "key_file" if has_certificate[0] else "certificate_file"
        raise located.error(("aggregator", missing), "is missing", "set it: a certificate needs its key")
    # Plain http reaches only this machine, where an aggregator may require no authentication.
    is_local = all(address.startswith("http://") for address in aggregator.addresses)
    if not aggregator.token_file and not any(has_certificate) and not is_local:
        remedy = "set it, or certificate_file and key_file without Kubernetes"
        raise located.error(("aggregator", "token_file"), "is missing", remedy)
    if aggregator.token_file and any(has_certificate):
        remedy = "keep it for Kubernetes, or certificate_file and key_file elsewhere"
        raise located.error(("aggregator", "token_file"), "is set beside a certificate", remedy)
