"""Programs that show how to use the product. None of them is part of it."""
