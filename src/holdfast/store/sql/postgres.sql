-- name: has_schema
SELECT to_regclass('schema_version') IS NOT NULL

-- name: make_schema_version
CREATE TABLE schema_version (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())

-- name: schema_version
SELECT coalesce(max(version), 0) FROM schema_version

-- name: note_version
INSERT INTO schema_version (version) VALUES (%(version)s)

-- name: shape
SELECT format(
    'column %%s.%%s %%s%%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
    CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
)
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
UNION ALL
SELECT format(
    'index %%s.%%s%%s (%%s)', t.relname, c.relname, CASE WHEN i.indisunique THEN ' unique' ELSE '' END,
    (SELECT string_agg(pg_get_indexdef(i.indexrelid, k, true), ', ' ORDER BY k) FROM generate_series(1, i.indnatts) k)
)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_class t ON t.oid = i.indrelid
WHERE c.relnamespace = current_schema()::regnamespace AND i.indisvalid
UNION ALL
SELECT format('row security %%s enabled %%s forced %%s', relname, relrowsecurity, relforcerowsecurity)
FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
UNION ALL
SELECT format('policy %%s.%%s %%s', tablename, policyname, qual)
FROM pg_policies
WHERE schemaname = current_schema()
UNION ALL
SELECT format('function %%s %%s', proname, md5(prosrc))
FROM pg_proc
WHERE pronamespace = current_schema()::regnamespace
UNION ALL
SELECT format('trigger %%s.%%s', c.relname, t.tgname)
FROM pg_trigger t
JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = current_schema()::regnamespace AND NOT t.tgisinternal

-- name: commit
SELECT commit_checkpoint(
    %(tenant)s, %(run)s, %(was)s, %(record)s, %(record_checksum)s, %(seq)s, %(id)s, %(created_at)s,
    %(envelope)s, %(checksum)s, %(marks)s, %(marks_checksum)s, %(fence)s, %(held)b,
    %(ids)b, %(codecs)s::integer[], %(sizes)s::integer[], %(stored_sizes)s::integer[], %(datas)b
)

-- name: put_chunks
SELECT put_chunks(%(tenant)s, %(ids)b, %(codecs)s::integer[], %(sizes)s::integer[], %(stored_sizes)s::integer[], %(datas)b)

-- name: run
SELECT n, record, checksum FROM run WHERE tenant = %(tenant)s AND id = %(run)s

-- name: lock_run
SELECT n, record, checksum FROM run WHERE tenant = %(tenant)s AND id = %(run)s FOR UPDATE

-- name: put_run
UPDATE run SET record = %(record)s, checksum = %(checksum)s WHERE tenant = %(tenant)s AND n = %(n)s

-- name: has_checkpoints
SELECT 1 FROM checkpoint WHERE tenant = %(tenant)s AND run = %(run)s LIMIT 1

-- name: lost_runs
SELECT DISTINCT run FROM checkpoint
WHERE tenant = %(tenant)s
    AND NOT EXISTS (SELECT FROM run WHERE run.tenant = %(tenant)s AND run.id = checkpoint.run)

-- name: add_holds
INSERT INTO hold (tenant, run, chunk, times)
SELECT %(tenant)s, %(n)s, n, 1 FROM chunk WHERE tenant = %(tenant)s AND id = ANY (%(ids)s)
ON CONFLICT DO NOTHING

-- name: drop_strays
DELETE FROM hold
WHERE tenant = %(tenant)s AND (
    NOT EXISTS (SELECT FROM run WHERE run.tenant = %(tenant)s AND run.n = hold.run)
    OR NOT EXISTS (SELECT FROM chunk WHERE chunk.tenant = %(tenant)s AND chunk.n = hold.chunk)
)

-- name: runs
SELECT id, record, checksum FROM run WHERE tenant = %(tenant)s ORDER BY n DESC LIMIT %(limit)s

-- name: checkpoint
SELECT id, envelope, checksum, marks, marks_checksum FROM checkpoint WHERE tenant = %(tenant)s AND id = %(id)s

-- name: checkpoint_at
SELECT id, envelope, checksum, marks, marks_checksum
FROM checkpoint
WHERE tenant = %(tenant)s AND run = %(run)s AND seq = %(seq)s

-- name: checkpoints
SELECT id, envelope, checksum, marks, marks_checksum, seq
FROM checkpoint
WHERE tenant = %(tenant)s AND run = %(run)s AND seq < %(before)s
ORDER BY seq DESC
LIMIT %(limit)s

-- name: tombstone_numbers
SELECT seq FROM tombstone WHERE tenant = %(tenant)s AND run = %(run)s AND seq BETWEEN %(low)s AND %(high)s ORDER BY seq

-- name: tombstone
SELECT seq, checksum, seal FROM tombstone WHERE tenant = %(tenant)s AND run = %(run)s AND id = %(id)s

-- name: tombstones
SELECT seq, id, checksum, seal FROM tombstone WHERE tenant = %(tenant)s AND run = %(run)s ORDER BY seq

-- name: begin_run
INSERT INTO run (tenant, id, record, checksum) VALUES (%(tenant)s, %(run)s, %(record)s, %(checksum)s)
ON CONFLICT DO NOTHING

-- name: fetch
SELECT id, codec, size, data FROM chunk WHERE tenant = %(tenant)s AND id = ANY (%(ids)s)

-- name: chunk_page
SELECT n, id FROM chunk WHERE tenant = %(tenant)s AND n > %(after)s ORDER BY n LIMIT 1000

-- name: mark
UPDATE checkpoint SET marks = %(marks)s, marks_checksum = %(checksum)s
WHERE tenant = %(tenant)s AND id = %(id)s
RETURNING id

-- name: find
SELECT id FROM checkpoint
WHERE tenant = %(tenant)s AND id BETWEEN %(low)s AND %(high)s
ORDER BY id
LIMIT %(limit)s

-- name: lock_checkpoints
SELECT id, envelope, checksum, marks, marks_checksum
FROM checkpoint
WHERE tenant = %(tenant)s AND id = ANY (%(ids)s) AND (%(run)s::text IS NULL OR run = %(run)s)
ORDER BY id
FOR UPDATE

-- name: mark_many
UPDATE checkpoint SET marks = given.marks, marks_checksum = given.checksum
FROM unnest(%(ids)s::text[], %(marks)s::bytea[], %(checksums)s::bytea[]) AS given (id, marks, checksum)
WHERE checkpoint.tenant = %(tenant)s AND checkpoint.id = given.id

-- name: delete_checkpoints
DELETE FROM checkpoint
WHERE tenant = %(tenant)s AND run = %(run)s AND id = ANY (%(ids)s)
RETURNING id, seq, checksum

-- name: put_tombstone
INSERT INTO tombstone (tenant, run, seq, id, checksum, seal)
VALUES (%(tenant)s, %(run)s, %(seq)s, %(id)s, %(checksum)s, %(seal)s)

-- name: newest_id
SELECT id FROM checkpoint WHERE tenant = %(tenant)s AND run = %(run)s ORDER BY seq DESC LIMIT 1

-- name: delete_run_checkpoints
DELETE FROM checkpoint WHERE tenant = %(tenant)s AND run = %(run)s

-- name: delete_run_tombstones
DELETE FROM tombstone WHERE tenant = %(tenant)s AND run = %(run)s

-- name: delete_run_lease
DELETE FROM lease WHERE tenant = %(tenant)s AND run = %(run)s

-- name: delete_run
DELETE FROM run WHERE tenant = %(tenant)s AND n = %(n)s

-- name: lock_held_chunks
SELECT chunk.n
FROM chunk
JOIN hold ON hold.tenant = chunk.tenant AND hold.chunk = chunk.n
WHERE hold.tenant = %(tenant)s AND hold.run = %(n)s AND (%(ids)s::bytea[] IS NULL OR chunk.id = ANY (%(ids)s))
ORDER BY chunk.id
FOR UPDATE OF chunk

-- name: drop_holds
DELETE FROM hold
USING chunk
WHERE hold.tenant = %(tenant)s AND hold.run = %(n)s AND hold.chunk = chunk.n AND chunk.n = ANY (%(chunks)s)
RETURNING chunk.id, hold.times

-- name: drop_unheld
DELETE FROM chunk
WHERE tenant = %(tenant)s AND n = ANY (%(chunks)s) AND NOT EXISTS (SELECT FROM hold WHERE hold.chunk = chunk.n)
RETURNING id, data IS NULL

-- name: held
SELECT chunk.id, hold.times
FROM hold
JOIN chunk ON chunk.tenant = hold.tenant AND chunk.n = hold.chunk
WHERE hold.tenant = %(tenant)s AND hold.run = %(n)s

-- name: strays
SELECT (SELECT count(*) FROM hold WHERE tenant = %(tenant)s
        AND NOT EXISTS (SELECT FROM run WHERE run.tenant = %(tenant)s AND run.n = hold.run)),
    (SELECT count(*) FROM hold WHERE tenant = %(tenant)s
        AND NOT EXISTS (SELECT FROM chunk WHERE chunk.tenant = %(tenant)s AND chunk.n = hold.chunk))

-- name: settings
SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('server_version')

-- name: stats
SELECT (SELECT count(*) FROM run WHERE tenant = %(tenant)s),
    (SELECT count(*) FROM checkpoint WHERE tenant = %(tenant)s),
    (SELECT min(created_at) FROM checkpoint WHERE tenant = %(tenant)s),
    (SELECT max(created_at) FROM checkpoint WHERE tenant = %(tenant)s),
    count(*), coalesce(sum(size), 0)::bigint, coalesce(sum(stored_size), 0)::bigint
FROM chunk
WHERE tenant = %(tenant)s

-- name: relation_bytes
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint
FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'

-- name: take_lease
INSERT INTO lease (tenant, run, owner, token, expires_at)
VALUES (
    %(tenant)s, %(run)s, %(owner)s, nextval('lease_token'),
    clock_timestamp() + %(ttl_s)s::float8 * interval '1 second'
)
ON CONFLICT (tenant, run) DO UPDATE
SET owner = excluded.owner, token = excluded.token, expires_at = excluded.expires_at
WHERE lease.expires_at <= clock_timestamp() OR lease.owner = excluded.owner
RETURNING owner, token, expires_at

-- name: lease
SELECT owner, token, expires_at
FROM lease
WHERE tenant = %(tenant)s AND run = %(run)s AND expires_at > clock_timestamp()

-- name: renew_lease
UPDATE lease SET expires_at = clock_timestamp() + %(ttl_s)s::float8 * interval '1 second'
WHERE tenant = %(tenant)s AND run = %(run)s AND token = %(token)s
RETURNING owner, token, expires_at

-- name: end_lease
UPDATE lease SET expires_at = '-infinity' WHERE tenant = %(tenant)s AND run = %(run)s AND token = %(token)s

-- name: wake
SELECT pg_notify(%(channel)s, %(payload)s)

-- name: doom
INSERT INTO doomed (tenant, id, since)
SELECT %(tenant)s, id, clock_timestamp() FROM unnest(%(ids)s::bytea[]) AS gone (id)
WHERE NOT EXISTS (SELECT FROM chunk WHERE chunk.tenant = %(tenant)s AND chunk.id = gone.id)
ON CONFLICT DO NOTHING

-- name: spare
DELETE FROM doomed WHERE tenant = %(tenant)s AND id = ANY (%(ids)s)

-- name: overdue
SELECT id FROM doomed
WHERE tenant = %(tenant)s AND since <= clock_timestamp() - %(grace_s)s::float8 * interval '1 second'
ORDER BY id
LIMIT 500
FOR UPDATE SKIP LOCKED

-- name: named_chunks
SELECT id FROM chunk WHERE tenant = %(tenant)s AND id = ANY (%(ids)s)
