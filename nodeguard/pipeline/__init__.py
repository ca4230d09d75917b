"""The node pipeline: sources -> derive -> judge, once, live or in replay."""
