"""`sexton dev` with reload: a parent process watches the app's files and restarts a child process when one changes.

The parent also uses the embedded server, so that the server keeps running while children restart. If the app's code cannot be
imported, the parent reports it and waits for a change. A child must never outlive its parent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from sexton.client.location import data_dir
from sexton.settings import Settings
from sexton.store.embedded.server import EmbeddedPostgres

BROKEN = 65  # exit code of the child: the app's code cannot be imported
LOOK_S = 0.5
POLL_S = 0.1
STOP_S = 10.0  # the child drains for less
IGNORED = {"__pycache__", "node_modules", "venv", "site-packages"}

Snapshot = dict[str, tuple[int, int]]


class Asked(BaseException):
    """A signal asked the process to stop."""


def supervise(app: str, options: list[str], settings: Settings) -> int:
    """Runs until a signal, or until the first child ends for another reason than code that cannot be imported. Returns the
    exit code."""
    with _signals(), _server(settings):
        folder = watched_folder(app)
        seen = look(folder)
        child = Child(app, options, again=False)
        is_first = True
        try:
            while True:
                code = _until_end_or_change(child, folder, seen)
                if code is not None:
                    if is_first and code != BROKEN:
                        return code
                    print(f"sexton: waiting for a change in {folder}", file=sys.stderr, flush=True)
                    _until_change(folder, seen)
                now = look(folder)
                print(f"{_first_change(folder, seen, now)} has changed: restarting", flush=True)
                child.stop()
                is_first = is_first and code == BROKEN
                seen, child = now, Child(app, options, again=not is_first)
        except Asked:
            return 0
        finally:
            child.stop()


def _until_end_or_change(child: Child, folder: Path, seen: Snapshot) -> int | None:
    """The child's exit code if it ended, `None` if a file changed."""
    while True:
        for _ in range(round(LOOK_S / POLL_S)):
            time.sleep(POLL_S)
            if (code := child.exit_code) is not None:
                return code
        if look(folder) != seen:
            return None


def _until_change(folder: Path, seen: Snapshot) -> None:
    while look(folder) == seen:
        time.sleep(LOOK_S)


class Child:
    """The child `sexton dev`, in its own session: Ctrl-C reaches only the parent, which asks the child to stop."""

    def __init__(self, app: str, options: list[str], *, again: bool) -> None:
        held_by_child, self._lifeline = os.pipe()
        command = [sys.executable, "-m", "sexton", "dev", app, "--no-reload", "--lifeline", str(held_by_child), *options]
        try:
            self._process = subprocess.Popen(
                [*command, "--again"] if again else command, pass_fds=[held_by_child], start_new_session=True
            )
        finally:
            os.close(held_by_child)

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        """A second signal to the parent kills the child."""
        try:
            if self._process.poll() is None:
                self._process.terminate()
                self._process.wait(STOP_S)
        except (subprocess.TimeoutExpired, Asked):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        finally:
            with suppress(OSError):
                os.close(self._lifeline)


def watched_folder(app: str) -> Path:
    """Where the app's files are: the current folder if the app is in it, else the folder of its module or package."""
    here = Path.cwd()
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))
    name = app.partition(":")[0].partition(".")[0]
    try:
        spec = find_spec(name) if name else None
    except (ImportError, ValueError):
        spec = None
    origin = None if spec is None else spec.origin or next(iter(spec.submodule_search_locations or []), None)
    if origin is None or Path(origin).is_relative_to(here):
        return here
    return Path(origin).parent


def look(folder: Path) -> Snapshot:
    """Every Python file and its modification time, without hidden files and virtual environments."""
    found: Snapshot = {}
    for path, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name not in IGNORED and not name.startswith(".") and not os.path.exists(f"{path}/{name}/pyvenv.cfg")
        ]
        for name in files:
            if name.endswith(".py") and not name.startswith("."):
                with suppress(OSError):
                    status = os.stat(f"{path}/{name}")
                    found[f"{path}/{name}"] = status.st_mtime_ns, status.st_size
    return found


def _first_change(folder: Path, before: Snapshot, after: Snapshot) -> str:
    changed = (path for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path))
    return os.path.relpath(next(changed, str(folder)), folder)


@contextmanager
def _signals() -> Iterator[None]:
    def asked(_number: int, _frame: FrameType | None) -> None:
        raise Asked

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, asked) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _server(settings: Settings) -> Iterator[None]:
    if settings.database_url is not None:
        yield
        return
    server = EmbeddedPostgres.start(data_dir(settings), shared=True)
    try:
        yield
    finally:
        server.leave()
