"""Evaluation of the diagnosis on simulated shared faults, bad roll-outs and normal days."""
