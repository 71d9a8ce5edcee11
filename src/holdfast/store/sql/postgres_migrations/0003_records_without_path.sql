-- A record that has no path is not found by one, as one that has no key is not found by a key.
ALTER TABLE record ALTER COLUMN path DROP NOT NULL;
DROP INDEX record_path;
CREATE INDEX record_path ON record (path, line, number) WHERE path IS NOT NULL;
