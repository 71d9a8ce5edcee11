"""From a store to a running workflow again."""
