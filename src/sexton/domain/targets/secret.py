"""A secret by its name: the job holds the name, only the worker that calls knows the value."""

from __future__ import annotations

import msgspec


class SecretRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """`{"secret": "stripe"}`; with `prefix`, what stands before it, such as `"Bearer "`."""

    secret: str
    prefix: str = ""
