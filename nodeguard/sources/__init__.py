"""Sources: one module for each part of a machine that is read; the first stage of the data path."""
