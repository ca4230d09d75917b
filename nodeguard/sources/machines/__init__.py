"""Machines that sources read: this one, a recorded one, and one that is being recorded."""
