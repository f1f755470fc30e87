"""Agreements of clients and server that protobuf cannot express: batch header, checksums, error table, hashes."""
