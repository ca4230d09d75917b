"""Observations to derived signals: correlation, decoding, peers, set differences. Pure."""
