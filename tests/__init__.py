"""The tests: tidiness of the tree, and the behaviour of every package."""
