"""Values to bytes and back: plain form, trees of chunks, compression, checksums."""
