"""Spark reads the log: options and ranges in pure tests, Arrow batches with pyarrow, the rest in one real session."""
