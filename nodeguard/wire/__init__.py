"""What agents and the aggregator say to each other: report, reply and instruction, and their encoding."""
