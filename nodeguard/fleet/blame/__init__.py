"""Which shared part is to blame for what many nodes find, or which check."""
