"""A real PgBouncer in transaction mode, between a test and its database."""

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from mainspring import embedded

from .services import as_owner_of, needed

SETTINGS = """
[databases]
* = host={sockets} port=5432 user=mainspring
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
"""


@contextmanager
def pooler_before(server: embedded.Server, dsn: str, *, connections: int) -> Iterator[str]:
    """Start a pooler that has so many connections to the server; yield the way to a database that leads through it."""
    program, where = needed("pgbouncer"), urlsplit(dsn)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="mainspring-pooler-") as room:
        settings, log = Path(room, "settings"), Path(room, "log")
        sockets = parse_qs(where.query)["host"][0]
        settings.write_text(SETTINGS.format(sockets=sockets, port=port, connections=connections))
        Path(room).chmod(0o755)
        with log.open("w") as stream:
            process = subprocess.Popen(
                [program, str(settings)], stdout=stream, stderr=stream, **as_owner_of(server.data_dir)
            )
        try:
            _until_listening(port, log)
            yield f"postgresql://mainspring@127.0.0.1:{port}{where.path}?sslmode=disable"
        finally:
            process.kill()
            process.wait()


def _until_listening(port: int, log: Path) -> None:
    patience = time.monotonic() + 10
    while time.monotonic() < patience:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.01)
    raise AssertionError(f"the pooler does not listen: {log.read_text()}")
