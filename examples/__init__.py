"""Programs that show how to use the product. They are not part of it."""
