"""A reference to a secret: the job stores the name, only the worker that makes the call knows the value."""

from __future__ import annotations

import re

import msgspec

from sexton.domain.fault import Invalid

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")  # also the name of a file and of a variable


class SecretRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """`{"secret": "stripe"}`; `prefix` is put before the value, such as `"Bearer "`."""

    secret: str
    prefix: str = ""


def check_name(name: str, *, field: str) -> None:
    if not is_name(name):
        raise Invalid(field, f"{name!r} is not a valid secret name; use lowercase letters, digits, - and _, such as stripe")


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None
