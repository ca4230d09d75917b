"""Incidents, Events and conditions, from decisions and findings."""
