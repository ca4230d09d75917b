"""The fleet: views, budget, plan, incidents. Pure."""
