"""The process on its machine: disk, file handles, memory, service manager."""
