"""From live values to a commit."""
