"""One server process: configuration, composition, the gRPC front, traffic control, security and metrics."""
