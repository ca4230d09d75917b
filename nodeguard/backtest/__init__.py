"""Backtest: recorded reports of a fleet, planned again under another policy, in virtual time."""
