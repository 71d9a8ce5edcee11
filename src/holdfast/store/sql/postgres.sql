-- name: has_schema
SELECT to_regclass('layout_version') IS NOT NULL

-- name: has_format_1
SELECT to_regclass('schema_version') IS NOT NULL

-- name: make_layout_version
CREATE TABLE layout_version (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())

-- name: layout_version
SELECT coalesce(max(version), 0) FROM layout_version

-- name: note_version
INSERT INTO layout_version (version) VALUES (%(version)s)

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
SELECT format('policy %%s.%%s %%s %%s %%s %%s', tablename, policyname, permissive, cmd, roles, concat(qual, with_check))
FROM pg_policies
WHERE schemaname = current_schema() AND NOT (permissive = 'RESTRICTIVE' AND policyname LIKE 'bound\_%%')
UNION ALL
SELECT format('function %%s %%s', proname, md5(prosrc))
FROM pg_proc
WHERE pronamespace = current_schema()::regnamespace
UNION ALL
SELECT format('trigger %%s.%%s', c.relname, t.tgname)
FROM pg_trigger t
JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = current_schema()::regnamespace AND NOT t.tgisinternal

-- name: own_schema
SELECT current_schema()

-- name: own_tables
SELECT c.relname, EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant')
FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
ORDER BY c.relname

-- name: owner_of_tables
SELECT pg_get_userbyid(relowner), pg_has_role(current_user, relowner, 'USAGE')
FROM pg_class
WHERE oid = 'run'::regclass

-- name: role_rights
SELECT CASE
    WHEN rolsuper THEN 'is a superuser'
    WHEN rolbypassrls THEN 'passes row-level security (BYPASSRLS)'
    WHEN rolcreaterole THEN 'may give itself other roles (CREATEROLE)'
    WHEN rolreplication THEN 'may copy the whole server (REPLICATION)'
    WHEN pg_has_role(oid, 'pg_read_server_files', 'MEMBER') THEN 'may read the files of the server'
    WHEN pg_has_role(oid, 'pg_write_server_files', 'MEMBER') THEN 'may write the files of the server'
    WHEN pg_has_role(oid, 'pg_execute_server_program', 'MEMBER') THEN 'may run programs on the server'
END
FROM pg_roles
WHERE rolname = %(role)s

-- name: acts_as
SELECT r.rolname, CASE
    WHEN r.rolsuper THEN 'is a superuser'
    WHEN r.rolbypassrls THEN 'passes row-level security'
    WHEN r.rolcreaterole THEN 'may give itself other roles'
    WHEN r.rolreplication THEN 'may copy the whole server'
    WHEN EXISTS (
        SELECT FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relowner = r.oid
    ) THEN 'owns the tables'
    WHEN EXISTS (SELECT FROM pg_namespace n WHERE n.oid = current_schema()::regnamespace AND n.nspowner = r.oid)
        THEN 'owns the schema'
    ELSE 'may use the tables itself'
END
FROM pg_roles r
WHERE
    r.rolname <> %(role)s
    AND pg_has_role(%(role)s::text, r.oid, 'MEMBER')
    AND (
        r.rolsuper OR r.rolbypassrls OR r.rolcreaterole OR r.rolreplication
        OR EXISTS (
            SELECT FROM pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
            WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND r.oid IN (c.relowner, a.grantee)
        )
        OR EXISTS (SELECT FROM pg_namespace n WHERE n.oid = current_schema()::regnamespace AND n.nspowner = r.oid)
    )
ORDER BY 1
LIMIT 1

-- name: bound_to
SELECT qual FROM pg_policies
WHERE schemaname = current_schema() AND tablename = 'run' AND policyname = %(policy)s

-- name: as_policy
SELECT format('((tenant COLLATE "POSIX") = %%L::text)', %(tenant)s::text)

-- name: own_rights
SELECT
    current_user, r.rolsuper OR r.rolbypassrls, pg_has_role(r.oid, c.relowner, 'MEMBER'),
    EXISTS (
        SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND NOT p.polpermissive AND r.oid = ANY (p.polroles)
    )
FROM pg_roles r, pg_class c
WHERE r.rolname = current_user AND c.oid = 'run'::regclass

-- name: lock
SELECT pg_advisory_xact_lock(%(key)s)

-- name: begin_turn
INSERT INTO writer (tenant, id, turn) VALUES (%(tenant)s, %(writer)s, %(turn)s)
ON CONFLICT (tenant, id) DO UPDATE SET turn = excluded.turn, at = now()

-- name: last_turn
INSERT INTO writer (tenant, id, turn) VALUES (%(tenant)s, %(writer)s, 0)
ON CONFLICT (tenant, id) DO UPDATE SET turn = writer.turn
RETURNING turn

-- name: drop_old_turns
DELETE FROM writer WHERE tenant = %(tenant)s AND at < now() - interval '1 day'

-- name: now
SELECT extract(epoch FROM clock_timestamp())::float8

-- name: hold_chunks
SELECT hold_chunks(
    %(tenant)s, %(run)s, %(ids)b::bytea[], %(codecs)b::bigint[], %(sizes)b::bigint[], %(stored_sizes)b::bigint[], %(datas)b::bytea[]
)

-- name: hold_present
SELECT hold_present(%(tenant)s, %(run)s, %(ids)b::bytea[])

-- name: release_chunks
SELECT release_chunks(%(tenant)s, %(run)s, %(ids)b::bytea[])

-- name: lock_chunks
SELECT FROM chunk WHERE tenant = %(tenant)s AND id = ANY (%(ids)b::bytea[]) ORDER BY id FOR UPDATE

-- name: fetch
SELECT id, codec, size, data FROM chunk WHERE tenant = %(tenant)s AND id = ANY (%(ids)b::bytea[])

-- name: held
SELECT chunk FROM hold WHERE tenant COLLATE "POSIX" = %(tenant)s AND run = %(run)s

-- name: chunk_page
SELECT id FROM chunk WHERE tenant = %(tenant)s AND id > %(after)s ORDER BY id LIMIT 1000

-- name: damaged_holds
SELECT id, holders, count(hold.run)
FROM chunk
LEFT JOIN hold ON hold.tenant = chunk.tenant AND hold.chunk = chunk.id
WHERE chunk.tenant = %(tenant)s
GROUP BY chunk.tenant, id, holders
HAVING holders <> count(hold.run)

-- name: recount_holders
SELECT recount_holders(%(tenant)s)

-- name: drop_stray_holds
DELETE FROM hold
WHERE tenant = %(tenant)s AND NOT EXISTS (SELECT FROM run WHERE run.tenant COLLATE "POSIX" = hold.tenant AND run.n = hold.run)

-- name: stray_holds
SELECT count(*) FROM hold
WHERE tenant = %(tenant)s AND NOT EXISTS (SELECT FROM run WHERE run.tenant COLLATE "POSIX" = hold.tenant AND run.n = hold.run)

-- name: settings
SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('server_version')

-- name: sizes
SELECT (SELECT count(*) FROM run WHERE tenant = %(tenant)s),
    (SELECT count(*) FROM checkpoint WHERE tenant = %(tenant)s),
    (SELECT count(*) FROM record WHERE tenant = %(tenant)s),
    count(*), coalesce(sum(size), 0)::bigint, coalesce(sum(stored_size), 0)::bigint,
    (SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
     WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r')
FROM chunk
WHERE tenant = %(tenant)s

-- name: notify
SELECT set_config('synchronous_commit', 'off', true), pg_notify(%(channel)s, %(payload)s)

-- name: doom
INSERT INTO doomed (tenant, id, since)
SELECT %(tenant)s, id, clock_timestamp() FROM unnest(%(ids)b::bytea[]) AS gone (id)
WHERE NOT EXISTS (SELECT FROM chunk WHERE chunk.tenant = %(tenant)s AND chunk.id = gone.id)
ON CONFLICT DO NOTHING

-- name: spare
DELETE FROM doomed WHERE tenant = %(tenant)s AND id = ANY (%(ids)b::bytea[])

-- name: overdue
SELECT id FROM doomed
WHERE tenant = %(tenant)s AND since <= clock_timestamp() - %(grace_s)s::float8 * interval '1 second'
ORDER BY id
LIMIT 500
FOR UPDATE SKIP LOCKED

-- name: named_chunks
SELECT id FROM chunk WHERE tenant = %(tenant)s AND id = ANY (%(ids)b::bytea[])
