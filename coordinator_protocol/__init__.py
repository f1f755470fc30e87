"""What clients and server agree on and protobuf cannot say: batch header, checksums, error table, hashes."""
