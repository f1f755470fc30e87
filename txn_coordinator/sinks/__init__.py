"""Sinks: batches that many transactions write, and one decision commits."""
