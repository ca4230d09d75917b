"""Derived signals: observations attributed, decoded and compared with each other. Pure."""
