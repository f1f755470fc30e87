"""Measurements: our server, and Kafka beside it where a JDK and Maven are there.

`python -m bench` takes everything, `python -m bench NAME...` some of it; `--list` says what there is.
"""
