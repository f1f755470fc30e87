"""Agreements of both ends: formats by golden bytes, hashes by published vectors, errors by rules."""
