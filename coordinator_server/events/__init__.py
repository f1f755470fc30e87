"""Observers of events, which update the metrics and write the log.

They are called once the event is durable, and cannot change anything.
"""
