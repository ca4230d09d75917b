"""Programs of the repository: the demo, the environment, the reference pages."""
