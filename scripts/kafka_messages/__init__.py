"""Generates the codecs of Kafka's messages from Kafka's own definitions: `python -m scripts.kafka_messages`."""
