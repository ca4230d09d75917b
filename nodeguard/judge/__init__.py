"""Checks evaluated on readings: findings, their windows, and the verdict of a node. Pure."""
