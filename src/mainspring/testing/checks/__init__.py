"""What every engine must keep, one promise a check; :mod:`mainspring.testing.engines` runs them."""
