"""The live parts of a run: each is captured and restored as a section, and usable by itself."""
