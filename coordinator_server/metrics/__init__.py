"""Prometheus metrics: counted as plain integers on the loop, published by one collector on its own thread."""
