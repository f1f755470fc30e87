"""Messages that the server stores, as protobuf."""
