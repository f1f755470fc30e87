"""What the server stores, as protobuf."""
