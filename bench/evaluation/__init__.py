"""Evaluation of the diagnosis in worlds drawn at random."""
