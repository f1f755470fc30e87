"""The benchmark harness itself: names, tables, arithmetic; one tiny case with real processes."""
