"""Options of `nodeguard aggregator` that exclude or need each other."""

from __future__ import annotations

import pytest

from nodeguard.cli.commands.aggregator import parse_options
from nodeguard.cli.usage import UsageError


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--certificate=a --key=b", "--certificate, --key and --publish-ca go together"),
        ("--publish-ca=a", "--certificate, --key and --publish-ca go together"),
        ("--client-ca=a", "--client-ca is for --standalone only"),
        ("--standalone --insecure --publish-ca=a", "--publish-ca is for Kubernetes only"),
        ("--standalone --client-ca=a --certificate=b", "--certificate and --key go together"),
    ],
)
def test_a_wrong_combination_is_refused(words: str, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        parse_options(words.split())


def test_a_certificate_of_another_issuer_is_accepted() -> None:
    options = parse_options(["--certificate=a", "--key=b", "--publish-ca=c"])
    assert (options.certificate, options.key, options.publish_ca) == ("a", "b", "c")
