"""What is kept, what goes, and the sweep behind it."""
