"""Advice: decisions take effect at once, as nothing but records. Pure."""
