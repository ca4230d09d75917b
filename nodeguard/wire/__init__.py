"""The messages between agents and the aggregator: report, reply and instruction, and their encoding."""
