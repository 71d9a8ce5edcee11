-- Large chunks may be objects outside the database.

ALTER TABLE chunk ALTER COLUMN data DROP NOT NULL;

-- Objects whose chunk row is gone; deleted once the grace is over, unless a writer takes the name back before.
CREATE TABLE doomed (
    tenant text NOT NULL,
    id bytea NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
);

ALTER TABLE doomed ENABLE ROW LEVEL SECURITY;
ALTER TABLE doomed FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON doomed USING (tenant = current_setting('holdfast.tenant', true));
