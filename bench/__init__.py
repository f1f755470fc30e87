"""Benchmarks of our server, and of Kafka beside it if a JDK and Maven are installed.

`python -m bench` measures everything, `python -m bench NAME...` only these cases; `--list` lists the cases.
"""
