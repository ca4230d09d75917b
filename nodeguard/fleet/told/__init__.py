"""What people are told of the fleet, from what a planner knows. Pure."""
