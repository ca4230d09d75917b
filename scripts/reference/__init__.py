"""Reference pages from the code: `make docs` writes them, a test compares them with the files."""
