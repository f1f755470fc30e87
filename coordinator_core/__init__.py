"""The inside of a server, assembled: frozen commands in, values out, with authorization, validation and parking.

gRPC is one client of the core. Tests and any second front are other clients, and find the same parts behind `assemble`.
"""
