"""A fleet in virtual time, through the real judge and the real fleet code."""
