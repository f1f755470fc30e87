"""A second checker of client histories, from spec log-and-runtime 6.2 alone: `python -m tests.histories FILE`."""
