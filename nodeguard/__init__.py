"""GPU node health: sources read, judge judges, the fleet decides, executors write."""

__version__ = "0.1.0"
