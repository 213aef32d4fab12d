"""Sexton with a batch handler: one call for up to 500 jobs."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from bench.peers.drivers import ours

schedule = ours.schedule


def client() -> AbstractAsyncContextManager[ours.Client]:
    return ours.client("note_all")


def work() -> None:
    ours.become("worker", "bench.batch_app:app")
