"""Signals that are heard in a thread. With a worker whose main thread waits in C: tests/process/test_hostile_handlers.py."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys

import pytest

from sexton.cli.signal_watch import SignalWatch
from tests.rig import LONG_S

WRITE = "import os, sys; os.write(int(sys.argv[1]), bytes([15]))"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no such thread")
def test_a_signal_of_another_process_with_the_same_descriptor_is_not_heard() -> None:
    """A process that a handler has just forked has the worker's descriptor and its signal handlers for a moment."""
    heard: queue.SimpleQueue[int] = queue.SimpleQueue()
    watch = SignalWatch.start(heard.put)
    assert watch is not None
    descriptor = watch._writes.fileno()
    subprocess.run([sys.executable, "-c", WRITE, str(descriptor)], pass_fds=[descriptor], check=True)
    os.write(descriptor, bytes([signal.SIGINT]))
    assert heard.get(timeout=LONG_S) == signal.SIGINT
    assert heard.empty()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no such thread")
def test_the_event_loop_gets_what_it_would_have_read() -> None:
    heard: queue.SimpleQueue[int] = queue.SimpleQueue()
    watch = SignalWatch.start(heard.put)
    assert watch is not None
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    before = signal.set_wakeup_fd(writes)
    try:
        watch.attend()
        watch.attend()  # again, when a callback has interrupted the loop
    finally:
        signal.set_wakeup_fd(before)
    os.write(watch._writes.fileno(), bytes([signal.SIGTERM]))
    assert heard.get(timeout=LONG_S) == signal.SIGTERM
    assert os.read(reads, 8) == bytes([signal.SIGTERM])
    os.close(reads)
    os.close(writes)
