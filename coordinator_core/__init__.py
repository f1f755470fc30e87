"""Everything inside a server, assembled: frozen commands in, values out, with authorization, validation and parking.

gRPC is one client of the core; tests and any second front are others, and find the same parts behind `assemble`.
"""
