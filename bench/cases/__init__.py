"""Cases: a module for each, listed in `bench/registry.py`."""
