"""Fuzzing of everything that takes bytes from outside, until something breaks.

A target (`targets.TARGETS`) takes bytes, does with them what the product would, and raises only where the product has a
bug. `make fuzz` runs all of them with atheris, `python -m tests.fuzz --help` says more. What broke a target is kept in
`crashes/` and tried again by the fast tests, with or without atheris.
"""
