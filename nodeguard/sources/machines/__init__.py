"""TODO: name the concept of this package."""
