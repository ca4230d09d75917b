"""The options of a command line, as the commands parse them."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.agent.options import AgentOptions
from nodeguard.aggregator.options import AggregatorOptions
from nodeguard.cli import agent_options as agent
from nodeguard.cli.commands import aggregator


def agent_options(words: Sequence[str]) -> AgentOptions:
    return agent.agent_options(agent.build_parser().parse_args(words))


def aggregator_options(words: Sequence[str]) -> AggregatorOptions:
    return aggregator.aggregator_options(aggregator.build_parser().parse_args(words))
