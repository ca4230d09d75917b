"""nodeguard agent: check this machine continuously, serve metrics and report to aggregators."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from functools import partial

from nodeguard.agent.app import run_agent
from nodeguard.agent.options import AgentOptions
from nodeguard.agent.process import limit_malloc
from nodeguard.cli.agent_options import agent_options, build_parser
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import validate_platform, warn_about_instance_type
from nodeguard.cli.scope import exit_code
from nodeguard.cli.usage import OK, UNKNOWN
from nodeguard.model.catalogue import Catalogue

__all__ = ["build_parser", "run"]


def run(options: Namespace) -> int:
    """Run the agent and return the exit code. Raises UserError."""
    limit_malloc()
    return asyncio.run(_run(agent_options(options)))


async def _run(options: AgentOptions) -> int:
    def validate(catalogue: Catalogue) -> None:
        validate_platform(catalogue, options.platform, options.setting_name("platform"))
        instance_type, name = options.instance_type, options.setting_name("instance_type")
        warn_about_instance_type(catalogue, instance_type, options.platform, name)

    verdict = await run_agent(
        options, partial(load_catalogue, options.checks, options.runbook_url_base), validate
    )
    if verdict is None:
        return UNKNOWN
    return exit_code(verdict, strict=False) if options.once else OK
