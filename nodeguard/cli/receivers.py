"""Who an agent reports to, out of its settings."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from nodeguard.agent.options import AggregatorOptions
from nodeguard.agent.reporting.credentials import TokenFile
from nodeguard.agent.reporting.delivery_state import DeliveryQueue
from nodeguard.agent.reporting.endpoint import Address, AddressError, asked, parse_address
from nodeguard.agent.reporting.endpoint_pool import Name
from nodeguard.agent.reporting.http1 import HttpsTransport
from nodeguard.agent.reporting.senders import Senders
from nodeguard.agent.reporting.tls import CertificateFiles, TrustError, tls_context
from nodeguard.agent.transitions import LogLine
from nodeguard.cli.usage import UsageError


def senders(
    config: str, aggregator: AggregatorOptions, mailbox: DeliveryQueue, log: Callable[[LogLine], None]
) -> Senders:
    """A sender to everybody behind each address. config: the file that names them. Raises UsageError where
    one is none, or where there is nothing to trust it by.
    """
    ca_file = aggregator.ca_file or None
    shown = None
    if aggregator.certificate_file:
        shown = CertificateFiles(aggregator.certificate_file, aggregator.key_file)
    try:
        if ca_file is not None:
            tls_context(ca_file)
        addresses = [parse_address(one) for one in aggregator.addresses]
    except AddressError as error:
        raise UsageError(f"{config}: aggregator.addresses: {error}") from None
    except TrustError as error:
        raise UsageError(f"{config}: aggregator.ca_file: {error}") from None

    def way(address: Address) -> HttpsTransport:
        return HttpsTransport(address, _token(aggregator), ca_file, shown)

    def name(address: Address) -> Name:
        return Name(address.name, partial(asked, address), lambda place: way(address.at(place)))

    return Senders(
        [way(one) for one in addresses if one.numbered],
        mailbox,
        random.random,
        lambda why: log({"event": "unreported", "why": why}),
        [name(one) for one in addresses if not one.numbered],
    )


def _token(aggregator: AggregatorOptions) -> TokenFile | None:
    return TokenFile(aggregator.token_file) if aggregator.token_file else None
