"""The drill of an upgrade: an installed older build under load hands its store to this tree, and takes it back."""
