"""A directory and its git position as a tree of chunks: captured, compared, restored; git's own store is not used."""
