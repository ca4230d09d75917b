"""The aggregator: collects the agents' reports, plans marks within budgets, and applies them."""
