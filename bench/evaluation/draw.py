"""Worlds drawn at random: a background, and the planted cause of a kind. Pure."""

from __future__ import annotations

from random import Random

from bench.evaluation.background import draw_background
from bench.evaluation.observed import observed_votes
from bench.evaluation.plants import KINDS
from bench.evaluation.world import Background, Plant, World

# Fleets that are drawn until one fits a kind.
ATTEMPTS = 200


def draw_world(kind: str, size_class: int, seed: int) -> World:
    """Return the world of a kind, a size class and a seed: the first drawn fleet that has a domain for it."""
    for attempt in range(ATTEMPTS):
        background = draw_background(size_class, seed, attempt)
        world = plant_cause(background, kind)
        if world is not None:
            return world
    raise ValueError(f"no fleet of size class {size_class} fits the kind {kind!r}: choose a larger class")


def plant_cause(background: Background, kind: str) -> World | None:
    """Return the world with the planted cause of a kind; None if the fleet has no domain for it."""
    plant = draw_plant(background, kind)
    if plant is None:
        return None
    return world_of(background, plant)


def world_of(background: Background, plant: Plant) -> World:
    """Return the world of a background and a plant, with its votes."""
    return World(background=background, plant=plant, votes=observed_votes(background, plant))


def draw_plant(background: Background, kind: str) -> Plant | None:
    """Return the planted cause of a kind; None if the fleet has no domain for it."""
    chance = Random(f"{background.seed} {background.size_class} {background.attempt} {kind}")
    return KINDS[kind](background, chance)
