"""Fakes that the behaviour suites hold to the real things, and the tools that tests share."""
