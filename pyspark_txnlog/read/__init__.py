"""Read side of the data source: planning, batch and stream readers, rows for Spark."""
