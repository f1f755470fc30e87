"""Kafka beside our server: the broker, its settings, and the load programs in Java. All of it comes through Maven."""
