"""The node's own loop: input and output only."""
