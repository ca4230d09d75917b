"""Random worlds: fleets with agents, an API server, operators and an aggregator, and invariants of them."""
