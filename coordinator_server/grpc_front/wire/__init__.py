"""The gRPC services: messages to frozen commands, values back to messages, and nothing else."""
