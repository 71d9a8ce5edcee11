"""Recovery: joins what `recover/` decides with the engine that reads and writes."""
