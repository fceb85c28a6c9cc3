"""Settings: what an operator decides, from a file, the environment and flags, each stronger than the one before it.

::

    [database]                                          mainspring.toml
    dsn = "postgresql://jobs@db/jobs"
    [worker]
    pools = { short = 100, long = 4 }

    MAINSPRING_WORKER__GRACE=1m                         the environment; MAINSPRING_DSN is short for database.dsn

Promise. ``load`` reads everything and raises nothing: all problems are listed at once, each with what to change. A
setting that cannot be read has its default in ``Loaded.settings``, which is for showing; whoever starts something
asks :func:`settings_or_raise`.
"""

from mainspring.config.loading import Loaded, Problem, Severity, load, settings_or_raise
from mainspring.config.settings import Settings
from mainspring.config.values import Secret

__all__ = ["Loaded", "Problem", "Secret", "Settings", "Severity", "load", "settings_or_raise"]
