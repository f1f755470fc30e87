"""What Prometheus scrapes: counted as plain integers on the loop, published by one collector on a thread of its own."""
