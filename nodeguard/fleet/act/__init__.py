"""Actions of the fleet: which are requested, and how each goes on. Pure."""
