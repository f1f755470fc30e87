"""The SDK: producers, readers and administration over one core that does no I/O."""
