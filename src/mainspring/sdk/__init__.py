"""The SDK: the same names over a database now, over HTTP later, blocking or not."""
