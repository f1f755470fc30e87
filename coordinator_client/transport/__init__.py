"""Connections to a server: unary calls and sessions, over grpcio or the compiled module."""
