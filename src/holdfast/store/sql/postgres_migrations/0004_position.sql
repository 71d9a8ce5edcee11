-- Where runs stand, for dashboards and for people with psql; nothing here is read back. What is encrypted is not shown,
-- nor what was copied from another store. Its rows go with their checkpoint.
CREATE TABLE position (
    tenant text NOT NULL,
    run text COLLATE "C" NOT NULL,
    line text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    detail jsonb NOT NULL,
    PRIMARY KEY (tenant, run, line, seq),
    FOREIGN KEY (tenant, run, line, seq) REFERENCES checkpoint ON DELETE CASCADE
);

ALTER TABLE position ENABLE ROW LEVEL SECURITY;
ALTER TABLE position FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON position USING (tenant COLLATE "POSIX" = current_setting('holdfast.tenant', true));

-- With the rights of who looks, so that a role that is bound to a tenant is bound here as well.
CREATE VIEW episode WITH (security_invoker = true) AS
SELECT
    checkpoint.run AS episode,
    checkpoint.seq,
    checkpoint.id,
    to_timestamp(checkpoint.created_at) AS created_at,
    checkpoint.status,
    detail ->> 'run_status' AS run_status,
    detail ->> 'trigger' AS trigger,
    detail ->> 'reason' AS reason,
    detail ->> 'phase' AS phase,
    detail ->> 'state' AS state,
    detail -> 'progress' AS progress,
    (detail ->> 'loop_count')::bigint AS loop_count,
    detail -> 'budget' AS budget,
    (detail ->> 'steps')::bigint AS steps,
    (detail ->> 'can_resume')::boolean AS can_resume
FROM checkpoint LEFT JOIN position USING (tenant, run, line, seq)
WHERE checkpoint.line = 'main' AND checkpoint.tenant = current_setting('holdfast.tenant', true);
GRANT SELECT ON episode TO PUBLIC;
