"""The gRPC front: transports, sessions, the dispatcher and the servicers of every method."""
