"""The policy file of the aggregator: schema, validation, warnings and reload."""
