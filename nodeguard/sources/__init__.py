"""One file for each thing read on a machine. A source reads and never judges."""
