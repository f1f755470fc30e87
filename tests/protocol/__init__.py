"""What both ends agree on: formats by golden bytes, hashes by published vectors, errors by rules."""
