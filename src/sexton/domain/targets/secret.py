"""A secret by its name: the job holds the name, only the worker that calls knows the value."""

from __future__ import annotations

import re

import msgspec

from sexton.domain.fault import Invalid

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")  # a file of that name, and a variable


class SecretRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """`{"secret": "stripe"}`; with `prefix`, what stands before it, such as `"Bearer "`."""

    secret: str
    prefix: str = ""


def check_name(name: str, *, field: str) -> None:
    if not is_name(name):
        raise Invalid(field, f"{name!r} is not the name of a secret; use small letters, digits, - and _, such as stripe")


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None
