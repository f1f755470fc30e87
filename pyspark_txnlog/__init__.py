"""Spark reads committed records of the log by the format name `txnlog`."""
