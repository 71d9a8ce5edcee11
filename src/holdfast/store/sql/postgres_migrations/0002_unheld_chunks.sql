-- Finds what nobody holds without reading every chunk; empty in a sound store.
CREATE INDEX chunk_unheld ON chunk (tenant, id) WHERE holders <= 0;
