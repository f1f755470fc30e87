"""What is measured: a module for each case, listed in `bench/registry.py`."""
