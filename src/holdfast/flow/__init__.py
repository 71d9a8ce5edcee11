"""The declared workflow: a file or a Python value, and the runner that carries it out."""
