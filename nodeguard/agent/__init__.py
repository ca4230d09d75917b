"""The agent: it reads its node without end, evaluates the readings, and reports."""
