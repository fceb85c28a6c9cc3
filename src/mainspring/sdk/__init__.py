"""The SDK: the same names over a database or a server, blocking or not."""
