"""One server process: configuration, composition, gRPC adapters, metrics and the command line."""
