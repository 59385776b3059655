ATTACH '{outside}' AS other
ATTACH ':memory:' AS other
VACUUM INTO '{outside}.copy'
PRAGMA query_only = OFF
PRAGMA journal_mode = DELETE
PRAGMA hard_heap_limit
SELECT * FROM pragma_database_list
SELECT * FROM pragma_table_info('runs')
SELECT load_extension('{outside}')
SELECT readfile('{outside}')
SELECT writefile('{outside}', 'x')
SELECT edit('x')
SELECT fts3_tokenizer('simple')
CREATE VIRTUAL TABLE temp.v USING fts5(a)
WITH a AS (SELECT 1) DELETE FROM runs
ANALYZE
REINDEX
