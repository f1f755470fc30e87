"""The configuration: its settings, where they come from, and what they may be."""
