"""Scenarios of shared causes: what the planner decides about failure domains and checks in whole histories of a
fleet. They observe its outputs only: degraded domains, marks of nodes and suppressed checks.
"""
