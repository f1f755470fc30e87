"""Sinks: batches that many members write and one decision commits."""
