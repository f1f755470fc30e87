"""AdminService on the wire."""
