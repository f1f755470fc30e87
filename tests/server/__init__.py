"""The server around the coordinators: edge, dispatcher, transports, configuration, and the process as a whole."""
