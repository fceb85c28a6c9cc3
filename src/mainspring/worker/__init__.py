"""Workers: claim no more than can start, run it, settle in batches."""
