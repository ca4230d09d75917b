"""The subcommands of `nodeguard`: one module for each, with a `run` function."""
