"""Topologies: in which failure domains each node is, by labels, node locations and versions."""
