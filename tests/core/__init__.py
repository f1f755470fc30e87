"""Tests of more than one part of the inside: the core's own use cases."""
