"""The decision: which marks are set, withheld and released, and why."""
