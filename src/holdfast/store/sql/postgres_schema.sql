-- The whole schema of format 2, for an empty database; a test holds it equal to all migrations together.
-- A row is a key, list columns that are derived from the value, the value and its seal (see store/tables.py).
-- Texts are compared by their bytes (COLLATE "C"), as every other medium compares them.
--
-- Every condition on a tenant is an equality, so its collation says nothing about the outcome; but an index serves
-- only conditions of its own collation. Keys have the default one, look-ups within a tenant "C", lists of a tenant
-- "ucs_basic"; "POSIX" is for policies and for what no index should find by the tenant. Otherwise a plan that is made
-- while a table is small finds rows by the tenant alone, in the narrowest index, and is kept when the table has grown.

CREATE TABLE meta (
    tenant text NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    seal bytea NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- begun: the order in which runs were begun, whatever the clocks said.
CREATE TABLE run (
    tenant text NOT NULL,
    id text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    project text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    status text COLLATE "C",
    updated_at double precision NOT NULL,
    forked_from text COLLATE "C",
    value bytea NOT NULL,
    seal bytea NOT NULL,
    begun bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX run_n ON run (n, tenant COLLATE "C");
CREATE INDEX run_key ON run (tenant COLLATE "C", project, key NULLS FIRST, id);
CREATE INDEX run_status ON run (tenant COLLATE "ucs_basic", status NULLS FIRST, updated_at, id);
CREATE INDEX run_updated ON run (tenant COLLATE "ucs_basic", updated_at, id);
CREATE INDEX run_fork ON run (forked_from, id) WHERE forked_from IS NOT NULL;
CREATE INDEX run_begun ON run (tenant COLLATE "ucs_basic", begun);

-- Half of each page stays free: an append then changes its line within the page and touches no index.
CREATE TABLE line (
    tenant text NOT NULL,
    run text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    value bytea NOT NULL,
    seal bytea NOT NULL,
    PRIMARY KEY (tenant, run, name)
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX line_n ON line (n, tenant COLLATE "C");

CREATE TABLE record (
    tenant text NOT NULL,
    line bigint NOT NULL,
    number bigint NOT NULL,
    path bigint,
    key bigint,
    value bytea NOT NULL,
    seal bytea NOT NULL,
    PRIMARY KEY (tenant, line, number)
);

-- Values are compressed before they come here.
ALTER TABLE record ALTER COLUMN value SET STORAGE EXTERNAL;

-- Without the tenant, which would double them: a path is a digest of 64 bits.
CREATE INDEX record_path ON record (path, line, number) WHERE path IS NOT NULL;
CREATE INDEX record_key ON record (key, line, number) WHERE key IS NOT NULL;

CREATE TABLE gap (
    tenant text NOT NULL,
    line bigint NOT NULL,
    first bigint NOT NULL,
    value bytea NOT NULL,
    seal bytea NOT NULL,
    PRIMARY KEY (tenant, line, first)
);

CREATE TABLE checkpoint (
    tenant text NOT NULL,
    run text COLLATE "C" NOT NULL,
    line text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    trigger text COLLATE "C" NOT NULL,
    phase text COLLATE "C",
    status text COLLATE "C" NOT NULL,
    created_at double precision NOT NULL,
    key text COLLATE "C",
    value bytea NOT NULL,
    seal bytea NOT NULL,
    PRIMARY KEY (tenant, run, line, seq)
);

ALTER TABLE checkpoint ALTER COLUMN value SET STORAGE EXTERNAL;

CREATE UNIQUE INDEX checkpoint_id ON checkpoint (tenant COLLATE "C", id);
CREATE INDEX checkpoint_trigger ON checkpoint (trigger, run, line, seq);
CREATE INDEX checkpoint_key ON checkpoint (key, run, line, seq) WHERE key IS NOT NULL;
CREATE INDEX checkpoint_time ON checkpoint (tenant COLLATE "ucs_basic", created_at);

CREATE TABLE tombstone (
    tenant text NOT NULL,
    run text COLLATE "C" NOT NULL,
    line text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    seal bytea NOT NULL,
    PRIMARY KEY (tenant, run, line, seq)
);

CREATE INDEX tombstone_id ON tombstone (id);

CREATE TABLE lease (
    tenant text NOT NULL,
    run text COLLATE "C" NOT NULL,
    line text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    seal bytea NOT NULL,
    PRIMARY KEY (tenant, run, line)
) WITH (fillfactor = 50);

CREATE TABLE inbox (
    tenant text NOT NULL,
    run text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    key text COLLATE "C",
    value bytea NOT NULL,
    seal bytea NOT NULL,
    PRIMARY KEY (tenant, run, number)
);

CREATE INDEX inbox_key ON inbox (key, run, number) WHERE key IS NOT NULL;

CREATE TABLE account (
    tenant text NOT NULL,
    run text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    seal bytea NOT NULL,
    PRIMARY KEY (tenant, run, name)
) WITH (fillfactor = 50);

-- data is NULL where the bytes are an object outside the database.
CREATE TABLE chunk (
    tenant text NOT NULL,
    id bytea NOT NULL,
    codec smallint NOT NULL,
    size bigint NOT NULL,
    stored_size bigint NOT NULL,
    holders bigint NOT NULL,
    data bytea,
    PRIMARY KEY (tenant, id)
);

ALTER TABLE chunk ALTER COLUMN data SET STORAGE EXTERNAL;

-- Finds what nobody holds without reading every chunk; empty in a sound store.
CREATE INDEX chunk_unheld ON chunk (tenant, id) WHERE holders <= 0;

-- Which runs (by their number) hold a chunk. It names the chunk by its id, so that the hold outlives a lost row.
CREATE TABLE hold (
    tenant text NOT NULL,
    chunk bytea NOT NULL,
    run bigint NOT NULL,
    PRIMARY KEY (tenant, chunk, run)
);

CREATE INDEX hold_run ON hold (run);

-- Objects whose chunk row is gone; deleted once the grace is over, unless a writer takes the name back before.
CREATE TABLE doomed (
    tenant text NOT NULL,
    id bytea NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- The last transaction of each connection that committed: tells what became of a COMMIT whose answer was lost.
CREATE TABLE writer (
    tenant text NOT NULL,
    id bigint NOT NULL,
    turn bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50);

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

-- Forced, so that it binds the owner of the tables as well; only superusers pass it.
DO $$
DECLARE
    v_table text;
BEGIN
    FOREACH v_table IN ARRAY ARRAY[
        'meta', 'run', 'line', 'record', 'gap', 'checkpoint', 'tombstone', 'lease', 'inbox', 'account',
        'chunk', 'hold', 'doomed', 'writer', 'position'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', v_table);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', v_table);
        EXECUTE format(
            'CREATE POLICY own_tenant ON %I USING (tenant COLLATE "POSIX" = current_setting(''holdfast.tenant'', true))', v_table
        );
    END LOOP;
END
$$;

-- Ends a statement some of whose guards did not hold, with all that it wrote.
CREATE FUNCTION refuse() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a guard of this commit did not hold' USING ERRCODE = 'unique_violation';
END
$$;

-- Stores chunks and lets a run hold them; returns how many were given. Rows are locked in the order of ids, those that
-- stay as they are as well, so a release elsewhere either waits and counts this hold, or deletes first, and then the
-- chunk is inserted again.
CREATE FUNCTION hold_chunks(
    p_tenant text, p_run bigint,
    p_ids bytea[], p_codecs bigint[], p_sizes bigint[], p_stored_sizes bigint[], p_datas bytea[]
) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    WITH fresh AS (
        INSERT INTO hold (tenant, chunk, run) SELECT p_tenant, id, p_run FROM unnest(p_ids) AS given (id)
        ON CONFLICT DO NOTHING
        RETURNING hold.chunk
    )
    INSERT INTO chunk (tenant, id, codec, size, stored_size, holders, data)
    SELECT p_tenant, id, codec, size, stored_size, 1, data
    FROM unnest(p_ids, p_codecs, p_sizes, p_stored_sizes, p_datas) AS given (id, codec, size, stored_size, data)
    ORDER BY id
    ON CONFLICT (tenant, id) DO UPDATE
    SET codec = excluded.codec, size = excluded.size, stored_size = excluded.stored_size, data = excluded.data,
        holders = chunk.holders + (excluded.id IN (SELECT fresh.chunk FROM fresh))::integer
    WHERE excluded.id IN (SELECT fresh.chunk FROM fresh)
        OR (chunk.codec, chunk.size, chunk.stored_size, chunk.data)
        IS DISTINCT FROM (excluded.codec, excluded.size, excluded.stored_size, excluded.data);
    RETURN cardinality(p_ids);
END
$$;

-- Lets a run hold chunks that are there.
CREATE FUNCTION hold_present(p_tenant text, p_run bigint, p_ids bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM chunk WHERE tenant = p_tenant AND id = ANY (p_ids) ORDER BY id FOR UPDATE;
    WITH fresh AS (
        INSERT INTO hold (tenant, chunk, run)
        SELECT p_tenant, id, p_run FROM chunk WHERE tenant = p_tenant AND id = ANY (p_ids)
        ON CONFLICT DO NOTHING
        RETURNING hold.chunk
    )
    UPDATE chunk SET holders = holders + 1 FROM fresh WHERE chunk.tenant = p_tenant AND chunk.id = fresh.chunk;
END
$$;

-- Ends a run's hold on chunks (NULL: on all), deletes those that nobody holds, and returns the ones whose bytes are
-- objects. Two facts must agree for that, the count and the hold rows: one damaged row deletes nothing. The rows are
-- locked first and looked at in a later statement, which sees the holds of every writer that came before the lock.
CREATE FUNCTION release_chunks(p_tenant text, p_run bigint, p_ids bytea[]) RETURNS SETOF bytea LANGUAGE plpgsql AS $$
DECLARE
    v_ids bytea[] := p_ids;
    v_released bytea[];
BEGIN
    IF v_ids IS NULL THEN
        SELECT coalesce(array_agg(id), '{}') INTO v_ids FROM (
            SELECT chunk FROM hold WHERE tenant COLLATE "POSIX" = p_tenant AND run = p_run
            UNION
            SELECT id FROM chunk WHERE tenant = p_tenant AND holders <= 0
        ) AS doomed_or_held (id);
    END IF;
    PERFORM FROM chunk WHERE tenant = p_tenant AND id = ANY (v_ids) ORDER BY id FOR UPDATE;
    WITH ended AS (
        DELETE FROM hold WHERE tenant = p_tenant AND run = p_run AND chunk = ANY (v_ids) RETURNING chunk
    )
    SELECT coalesce(array_agg(chunk), '{}') INTO v_released FROM ended;
    RETURN QUERY
        WITH gone AS (
            DELETE FROM chunk
            WHERE tenant = p_tenant AND id = ANY (v_ids) AND holders - (id = ANY (v_released))::integer <= 0
                AND NOT EXISTS (SELECT FROM hold WHERE hold.tenant = p_tenant AND hold.chunk = chunk.id)
            RETURNING id, data IS NULL AS is_outside
        )
        SELECT id FROM gone WHERE is_outside;
    UPDATE chunk SET holders = holders - 1 WHERE tenant = p_tenant AND id = ANY (v_released);
END
$$;

-- Makes every chunk's count of holders the number of runs that hold it.
CREATE FUNCTION recount_holders(p_tenant text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_ids bytea[];
BEGIN
    SELECT coalesce(array_agg(id), '{}') INTO v_ids FROM chunk
    WHERE tenant = p_tenant
        AND holders <> (SELECT count(*) FROM hold WHERE hold.tenant = p_tenant AND hold.chunk = chunk.id);
    PERFORM FROM chunk WHERE tenant = p_tenant AND id = ANY (v_ids) ORDER BY id FOR UPDATE;
    UPDATE chunk
    SET holders = (SELECT count(*) FROM hold WHERE hold.tenant = p_tenant AND hold.chunk = chunk.id)
    WHERE tenant = p_tenant AND id = ANY (v_ids);
END
$$;
