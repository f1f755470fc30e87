"""The server's descriptions for administrators as frozen values, and their constructors from protobuf messages."""
