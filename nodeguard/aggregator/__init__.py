"""The aggregator: hears agents, plans, has marks written, and answers people."""
