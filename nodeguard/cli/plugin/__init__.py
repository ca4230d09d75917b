"""The kubectl plug-in: the commands of nodeguard from a laptop, with the rights of the caller."""
