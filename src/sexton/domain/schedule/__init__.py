"""Schedules: values in, instants out. No clock, no database; the caller passes the current time."""

from __future__ import annotations

from . import dialects
from .check import schedule
from .fires import fires, jitter_of, last_fire, next_fire
from .rule import DstRule, Jitter, Schedule, Window
from .words import describe
from .zone import tzdata_order, tzdata_version

__all__ = [
    "DstRule",
    "Jitter",
    "Schedule",
    "Window",
    "describe",
    "dialects",
    "fires",
    "jitter_of",
    "last_fire",
    "next_fire",
    "schedule",
    "tzdata_order",
    "tzdata_version",
]
