CREATE INDEX run_fork ON run (forked_from) WHERE forked_from IS NOT NULL
