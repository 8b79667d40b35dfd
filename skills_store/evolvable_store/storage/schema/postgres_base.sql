-- What every table of PostgreSQL stands on: projects, their members, and functions that SQLite has and PostgreSQL lacks.
CREATE SCHEMA evolvable;
SET LOCAL search_path = evolvable;
CREATE TABLE schema_version (version bigint PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
-- commits: counts the transactions that wrote. Its row is the write lock of the project.
CREATE TABLE project (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, commits bigint NOT NULL DEFAULT 0
);
-- role: a login role of the server. Who is no member of a project sees nothing of it.
CREATE TABLE member (
    project bigint NOT NULL REFERENCES project, role text NOT NULL, writes boolean NOT NULL, PRIMARY KEY (project, role)
);
CREATE FUNCTION visible_project() RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = evolvable, pg_temp AS $$
    SELECT p.id FROM project p JOIN member m ON m.project = p.id
    WHERE p.name = current_setting('evolvable.project', true) AND m.role = session_user::text
$$;
CREATE FUNCTION writable_project() RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = evolvable, pg_temp AS $$
    SELECT p.id FROM project p JOIN member m ON m.project = p.id
    WHERE p.name = current_setting('evolvable.project', true) AND m.role = session_user::text AND m.writes
$$;
-- Takes the write lock of the chosen project until the transaction ends.
CREATE FUNCTION lock_project() RETURNS TABLE (project bigint, transaction text) LANGUAGE sql VOLATILE SECURITY DEFINER
    SET search_path = evolvable, pg_temp AS $$
    UPDATE project SET commits = commits + 1 WHERE id = writable_project() RETURNING id, pg_current_xact_id()::text
$$;
CREATE FUNCTION commits() RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = evolvable, pg_temp AS $$ SELECT commits FROM project WHERE id = visible_project() $$;
-- Numbers that are never given twice, for tables whose newest rows may be deleted.
CREATE TABLE counter (
    name text NOT NULL, value bigint NOT NULL, project bigint NOT NULL DEFAULT visible_project(),
    PRIMARY KEY (project, name)
);
CREATE FUNCTION next_number(counted text) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    INSERT INTO evolvable.counter (name, value) VALUES (counted, 1)
    ON CONFLICT (project, name) DO UPDATE SET value = counter.value + 1 RETURNING value
$$;
ALTER TABLE counter ENABLE ROW LEVEL SECURITY;
ALTER TABLE counter FORCE ROW LEVEL SECURITY;
CREATE POLICY reading ON counter FOR SELECT USING (project = (SELECT visible_project()));
CREATE POLICY inserting ON counter FOR INSERT WITH CHECK (project = (SELECT writable_project()));
CREATE POLICY updating ON counter FOR UPDATE USING (project = (SELECT writable_project()));
CREATE POLICY deleting ON counter FOR DELETE USING (project = (SELECT writable_project()));
-- Lets the roles of a project use one table.
CREATE FUNCTION grant_table(made text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE one record;
BEGIN
    FOR one IN SELECT role, bool_or(writes) AS writes FROM evolvable.member GROUP BY role LOOP
        EXECUTE format('GRANT SELECT ON evolvable.%I TO %I', made, one.role);
        IF one.writes THEN
            EXECUTE format('GRANT INSERT, UPDATE, DELETE ON evolvable.%I TO %I', made, one.role);
        END IF;
    END LOOP;
END $$;
-- Makes a project where there is none, and a role its member. Only the owner of the schema may call it.
CREATE FUNCTION add_member(named text, joining text, may_write boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE made record;
BEGIN
    INSERT INTO evolvable.project (name) VALUES (named) ON CONFLICT DO NOTHING;
    INSERT INTO evolvable.member SELECT id, joining, may_write FROM evolvable.project WHERE name = named
        ON CONFLICT (project, role) DO UPDATE SET writes = excluded.writes;
    EXECUTE format('GRANT USAGE ON SCHEMA evolvable TO %I', joining);
    EXECUTE format('GRANT SELECT ON evolvable.schema_version TO %I', joining);
    EXECUTE format('GRANT EXECUTE ON FUNCTION evolvable.visible_project, evolvable.writable_project,
        evolvable.lock_project, evolvable.commits TO %I', joining);
    FOR made IN SELECT tablename FROM pg_tables WHERE schemaname = 'evolvable' AND rowsecurity LOOP
        PERFORM evolvable.grant_table(made.tablename);
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION visible_project, writable_project, lock_project, commits, grant_table, add_member FROM PUBLIC;
-- SQLite's functions.
CREATE FUNCTION json_each(given text, OUT key text, OUT value text) RETURNS SETOF record LANGUAGE plpgsql IMMUTABLE ROWS 8 AS $$
BEGIN
    IF json_typeof(given::json) = 'object' THEN
        RETURN QUERY SELECT f.key COLLATE "C", f.value COLLATE "C" FROM json_each_text(given::json) f;
    ELSE
        RETURN QUERY SELECT (f.place - 1)::text COLLATE "C", f.value COLLATE "C"
            FROM json_array_elements_text(given::json) WITH ORDINALITY f (value, place);
    END IF;
END $$;
CREATE FUNCTION json_part(given text, place integer) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT (given::json ->> place) COLLATE "C"
$$;
CREATE OPERATOR ->> (LEFTARG = text, RIGHTARG = integer, FUNCTION = json_part);
CREATE FUNCTION json_valid(given text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN given IS JSON THEN 1 ELSE 0 END
$$;
CREATE FUNCTION max(one bigint, other bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT greatest(one, other) $$;
CREATE FUNCTION add_if(total bigint, true_one boolean) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN true_one IS NULL THEN total ELSE coalesce(total, 0) + true_one::int END
$$;
CREATE AGGREGATE sum(boolean) (SFUNC = add_if, STYPE = bigint);
