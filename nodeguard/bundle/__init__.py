"""Bundles: recordings of everything that the sources read on one node; reading, writing, anonymising."""
