"""The delivery of a node's reports to every aggregator, and of their instructions to the agent."""
