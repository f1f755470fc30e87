"""Read and verify the rows of a store whose server is stopped."""
