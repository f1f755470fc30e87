"""Topic partitions: idempotent and transactional append, markers, the last stable offset, fetch."""
