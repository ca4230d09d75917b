"""The doctor: checks of an installation, on a node and in a cluster, each with its remedy."""
