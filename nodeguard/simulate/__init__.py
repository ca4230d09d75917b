"""Simulation of a fleet in virtual time, with the real derivation, judge and planner."""
