"""The group coordinator, on a manual clock."""
