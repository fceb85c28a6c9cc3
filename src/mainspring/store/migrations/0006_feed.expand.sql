-- What has just ended, for those who look on. History is appended to as it settles, so a range of blocks is a range of
-- time: this index is a thousandth of an ordinary one, and an insert hardly notices it.
CREATE INDEX run_history_settled ON run_history USING brin (settled_at) WITH (pages_per_range = 16, autosummarize = on);
