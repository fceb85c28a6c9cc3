"""Tasks: the functions that jobs run, as their authors write them. Importing one opens no connection."""
