"""GPU node health: sources read, judge judges, the fleet decides, executors write."""
