"""Leases as callers present them: one signed text, in the body or as `Authorization: Bearer`. Without one nothing changes."""

from __future__ import annotations

from uuid import UUID

from sexton.api.answers.problems import Refused
from sexton.api.state import ApiRequest
from sexton.domain import signed_lease
from sexton.domain.run import Lease
from sexton.domain.signed_lease import SignedLease
from sexton.store.database import Database
from sexton.store.work import callbacks

_HOW = "send the `lease` that came with the run, in the body or as `Authorization: Bearer`"


class Leases:
    """Signs and reads them; the cluster's key is read once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._key: bytes | None = None

    def __repr__(self) -> str:
        return "<Leases>"

    async def written(self, lease: Lease) -> str:
        return signed_lease.written(await self._known_key(), SignedLease(lease.run_id, lease.job_id, lease.token))

    async def read(self, run_id: UUID, text: str) -> SignedLease:
        lease = signed_lease.read(await self._known_key(), run_id, text)
        if lease is None:
            raise Refused("lease_invalid", f"this is not a lease of the run {run_id}; {_HOW}", headers=_ASK)
        return lease

    async def _known_key(self) -> bytes:
        if self._key is None:
            async with self._database.connection() as connection:
                self._key = await callbacks.key(connection)
        return self._key


_ASK = {"WWW-Authenticate": "Bearer"}


def shown(request: ApiRequest, in_body: str | None) -> str:
    """The body's comes first, because the header may identify the caller instead."""
    if in_body is not None:
        return in_body
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not credentials.strip():
        raise Refused("lease_invalid", f"the lease is missing; {_HOW}", headers=_ASK)
    return credentials.strip()
