COPY runs TO '{outside}'
COPY runs FROM PROGRAM 'id'
WITH gone AS (DELETE FROM runs RETURNING *) SELECT * FROM gone
SELECT * INTO mine FROM runs
SELECT * FROM runs FOR UPDATE
SELECT set_config('transaction_read_only', 'off', false), lo_create(0)
SELECT pg_read_file('{outside}')
SELECT * FROM pg_ls_dir('/')
SELECT lo_import('{outside}')
SELECT pg_reload_conf()
SET ROLE kit
SET transaction_read_only = off
DO $$ BEGIN DELETE FROM runs; END $$
CALL x()
SELECT * FROM pg_authid
EXPLAIN ANALYZE DELETE FROM runs
