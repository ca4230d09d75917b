"""What was told of a fleet, planned for again under another policy, in virtual time."""
