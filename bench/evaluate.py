"""How exact the diagnosis is: recall, precision and delay in simulated fleets, with intervals at 95%.

`python bench/evaluate.py` prints the published table for 64 nodes; --nodes, --days and --rollouts print those
of other sizes. Each kind of shared fault has its own episodes; rollouts of a bad catalogue and normal days
count false diagnoses. README.md in bench/evaluation has the results, and explains the columns.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.evaluation.evaluate import HELD_OUT, EvaluationInputs, EvaluationPlan, evaluate
from bench.evaluation.tables import evaluation_lines
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import load_policy
from nodeguard.cli.render.terminal import format_lines
from nodeguard.cli.streams import print_error, print_output
from nodeguard.cli.usage import ArgumentParser, duration, whole_number
from nodeguard.model.failure import UserError
from nodeguard.model.policy import default_policy
from nodeguard.simulate.simulation import enforce_all, with_topology_labels

# The first seed of the published figures.
SEED = 2 * HELD_OUT

# A smaller fleet has only one domain that is large enough for a shared fault.
FEWEST_NODES = 16


def main() -> None:
    """Print the tables."""
    options = parser().parse_args()
    catalogue, signals = load_catalogue()
    try:
        policy = load_policy(options.policy, catalogue) if options.policy else None
    except UserError as error:
        sys.exit(f"bench/evaluate.py: {error}")
    policy = policy or enforce_all(default_policy(catalogue.fault_classes))
    inputs = EvaluationInputs(catalogue, signals, with_topology_labels(policy))
    result = evaluate(inputs, evaluation_plan(options), options.jobs, print_error)
    print_output(format_lines(list(evaluation_lines(result))))


def parser() -> ArgumentParser:
    """Return the parser of the options. Its defaults are those of the published table for 64 nodes."""
    parser = ArgumentParser(
        prog="bench/evaluate.py", description="Evaluate the diagnosis in simulated fleets."
    )
    add, runs = parser.add_argument, whole_number(0, 10_000)
    nodes = whole_number(FEWEST_NODES, 100_000)
    add("--nodes", metavar="N", type=nodes, default=64, help="nodes of the fleet (64)")
    add("--episodes", metavar="N", type=runs, default=100, help="episodes of each shared fault (100)")
    add("--rollouts", metavar="N", type=runs, default=0, help="runs of each rollout of false alarms (0)")
    add("--days", metavar="N", type=runs, default=100, help="normal days (100)")
    add("--before", metavar="TIME", type=duration, help="normal time before a fault (6h)")
    add("--compare", action="store_true", help="run each episode again without diagnosis")
    add("--seed", metavar="N", type=whole_number(0, 2**31), default=SEED, help=f"the first seed ({SEED})")
    add("--policy", metavar="FILE", help="policy file (default: enforce all marks)")
    add("--jobs", metavar="N", type=whole_number(1, 1024), default=os.cpu_count() or 1, help="processes")
    return parser


def evaluation_plan(options: Namespace) -> EvaluationPlan:
    """Return the size of the evaluation that the options ask for."""
    return EvaluationPlan(
        nodes=options.nodes,
        episodes=options.episodes,
        compares=options.compare,
        rollout_runs=options.rollouts,
        days=options.days,
        before=EvaluationPlan().before if options.before is None else options.before,
        seed=options.seed,
    )


if __name__ == "__main__":
    main()
