-- The messages of a save share a row: store/postgres/packing.py. What is there is kept as runs of one message. The table has
-- another name from now on, so that a process of an older version is refused and puts nothing between them.

ALTER TABLE messages RENAME TO runs;
ALTER INDEX messages_pkey RENAME TO runs_pkey;
ALTER TABLE runs RENAME COLUMN seq TO first;
ALTER TABLE runs RENAME COLUMN body TO value;
ALTER TABLE runs ADD COLUMN size integer NOT NULL DEFAULT 1;

-- The server keeps samples of columns for its planner, where no redaction reaches them. From now on it keeps none of these;
-- to say which type a column has forgets those that are there, and how it is stored. No table is rewritten.
ALTER TABLE runs ALTER COLUMN value TYPE bytea, ALTER COLUMN value SET STATISTICS 0;
ALTER TABLE snapshots ALTER COLUMN record TYPE bytea, ALTER COLUMN record SET STATISTICS 0;
ALTER TABLE blobs ALTER COLUMN body TYPE bytea, ALTER COLUMN body SET STATISTICS 0;
ALTER TABLE masks ALTER COLUMN replacement TYPE bytea, ALTER COLUMN replacement SET STATISTICS 0;

-- Values are compressed already, and are not tried again. Two of them may fill a page before they are kept elsewhere.
ALTER TABLE runs ALTER COLUMN value SET STORAGE EXTERNAL;
ALTER TABLE runs SET (toast_tuple_target = 4080);
