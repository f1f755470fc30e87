"""The configuration: settings, their sources, and their valid values."""
