-- Runs, checkpoints, chunks, holds and leases, each under its tenant.

CREATE TABLE run (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    id text NOT NULL,
    record bytea NOT NULL,
    checksum bytea NOT NULL,
    UNIQUE (tenant, id)
) WITH (fillfactor = 50);

CREATE TABLE checkpoint (
    tenant text NOT NULL,
    run text NOT NULL,
    seq bigint NOT NULL,
    id text NOT NULL,
    created_at timestamptz NOT NULL,
    envelope bytea NOT NULL,
    checksum bytea NOT NULL,
    marks bytea NOT NULL,
    marks_checksum bytea NOT NULL,
    PRIMARY KEY (tenant, run, seq),
    UNIQUE (tenant, id)
);

CREATE INDEX checkpoint_age ON checkpoint (tenant, created_at);

CREATE TABLE tombstone (
    tenant text NOT NULL,
    run text NOT NULL,
    seq bigint NOT NULL,
    id text NOT NULL,
    checksum bytea NOT NULL,
    seal bytea NOT NULL,
    PRIMARY KEY (tenant, run, seq)
);

CREATE TABLE chunk (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    id bytea NOT NULL,
    codec smallint NOT NULL,
    size integer NOT NULL,
    stored_size integer NOT NULL,
    data bytea NOT NULL,
    UNIQUE (tenant, id)
);

ALTER TABLE chunk ALTER COLUMN data SET STORAGE EXTERNAL;

-- times: how often the run brought the chunk, so that a writer can add up its holds without asking.
CREATE TABLE hold (
    tenant text NOT NULL,
    run bigint NOT NULL,
    chunk bigint NOT NULL,
    times integer NOT NULL,
    PRIMARY KEY (tenant, run, chunk)
);

CREATE INDEX hold_chunk ON hold (chunk);

CREATE SEQUENCE lease_token;

CREATE TABLE lease (
    tenant text NOT NULL,
    run text NOT NULL,
    owner text NOT NULL,
    token bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, run)
);

ALTER TABLE run ENABLE ROW LEVEL SECURITY;
ALTER TABLE run FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON run USING (tenant = current_setting('holdfast.tenant', true));

ALTER TABLE checkpoint ENABLE ROW LEVEL SECURITY;
ALTER TABLE checkpoint FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON checkpoint USING (tenant = current_setting('holdfast.tenant', true));

ALTER TABLE tombstone ENABLE ROW LEVEL SECURITY;
ALTER TABLE tombstone FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON tombstone USING (tenant = current_setting('holdfast.tenant', true));

ALTER TABLE chunk ENABLE ROW LEVEL SECURITY;
ALTER TABLE chunk FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON chunk USING (tenant = current_setting('holdfast.tenant', true));

ALTER TABLE hold ENABLE ROW LEVEL SECURITY;
ALTER TABLE hold FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON hold USING (tenant = current_setting('holdfast.tenant', true));

ALTER TABLE lease ENABLE ROW LEVEL SECURITY;
ALTER TABLE lease FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON lease USING (tenant = current_setting('holdfast.tenant', true));

-- A chunk that is there is locked even when it is left as it is: a sweep then waits, and sees the new hold.
CREATE FUNCTION put_chunks(
    p_tenant text, p_ids bytea[], p_codecs integer[], p_sizes integer[], p_stored_sizes integer[], p_datas bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chunk (tenant, id, codec, size, stored_size, data)
    SELECT p_tenant, id, codec, size, stored_size, data
    FROM unnest(p_ids, p_codecs, p_sizes, p_stored_sizes, p_datas) AS given (id, codec, size, stored_size, data)
    ON CONFLICT (tenant, id) DO UPDATE
    SET codec = excluded.codec, size = excluded.size, stored_size = excluded.stored_size, data = excluded.data
    WHERE (chunk.codec, chunk.size, chunk.stored_size, chunk.data)
        IS DISTINCT FROM (excluded.codec, excluded.size, excluded.stored_size, excluded.data);
END
$$;

-- One commit: done; again (it was done before, its answer was lost); stale (the run's record is another);
-- held (somebody has a lease and this writer has none); fenced (this writer's lease is no longer the run's).
CREATE FUNCTION commit_checkpoint(
    p_tenant text, p_run text, p_was bytea, p_record bytea, p_record_checksum bytea,
    p_seq bigint, p_id text, p_created_at timestamptz,
    p_envelope bytea, p_checksum bytea, p_marks bytea, p_marks_checksum bytea, p_fence bigint, p_held bytea[],
    p_ids bytea[], p_codecs integer[], p_sizes integer[], p_stored_sizes integer[], p_datas bytea[]
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_run bigint;
    v_refusal text := 'stale';
BEGIN
    IF p_fence IS NULL THEN
        PERFORM FROM lease WHERE tenant = p_tenant AND run = p_run AND expires_at > clock_timestamp();
        IF FOUND THEN
            v_refusal := 'held';
        END IF;
    ELSE
        PERFORM FROM lease WHERE tenant = p_tenant AND run = p_run AND token = p_fence FOR SHARE;
        IF NOT FOUND THEN
            v_refusal := 'fenced';
        END IF;
    END IF;
    IF v_refusal = 'stale' THEN
        IF p_was IS NULL THEN
            INSERT INTO run (tenant, id, record, checksum) VALUES (p_tenant, p_run, p_record, p_record_checksum)
            ON CONFLICT DO NOTHING RETURNING n INTO v_run;
        ELSE
            UPDATE run SET record = p_record, checksum = p_record_checksum
            WHERE tenant = p_tenant AND id = p_run AND checksum = p_was RETURNING n INTO v_run;
        END IF;
    END IF;
    IF v_run IS NULL THEN
        PERFORM FROM checkpoint
        WHERE tenant = p_tenant AND run = p_run AND seq = p_seq AND id = p_id AND checksum = p_checksum;
        RETURN CASE WHEN FOUND THEN 'again' ELSE v_refusal END;
    END IF;
    IF cardinality(p_ids) > 0 THEN
        INSERT INTO chunk (tenant, id, codec, size, stored_size, data)
        SELECT p_tenant, id, codec, size, stored_size, data
        FROM unnest(p_ids, p_codecs, p_sizes, p_stored_sizes, p_datas) AS given (id, codec, size, stored_size, data)
        ON CONFLICT (tenant, id) DO UPDATE
        SET codec = excluded.codec, size = excluded.size, stored_size = excluded.stored_size, data = excluded.data
        WHERE (chunk.codec, chunk.size, chunk.stored_size, chunk.data)
            IS DISTINCT FROM (excluded.codec, excluded.size, excluded.stored_size, excluded.data);
    END IF;
    IF cardinality(p_held) > 0 THEN
        INSERT INTO hold (tenant, run, chunk, times)
        SELECT p_tenant, v_run, n, 1 FROM chunk WHERE tenant = p_tenant AND id = ANY (p_held)
        ON CONFLICT (tenant, run, chunk) DO UPDATE SET times = hold.times + 1;
    END IF;
    INSERT INTO checkpoint (tenant, run, seq, id, created_at, envelope, checksum, marks, marks_checksum)
    VALUES (p_tenant, p_run, p_seq, p_id, p_created_at, p_envelope, p_checksum, p_marks, p_marks_checksum);
    RETURN 'done';
END
$$;
