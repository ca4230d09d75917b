"""History: transitions of the fleet in a SQLite file, for backtests and repeat offenders."""
