"""Evaluation of the diagnosis on simulated shared faults, bad rollouts and normal days."""
