"""What Patroni and HAProxy are told. The times are chosen so that a dead node is replaced well within 45 s and a busy machine
is not taken for a dead one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

Mode = Literal["sync", "async"]
Way = Literal["haproxy", "hosts"]

TTL_S = 15  # of the leader's key in etcd: a node that dies with its Patroni is replaced no sooner
LOOP_S = 2  # Patroni's look at its own PostgreSQL: a dead postmaster is noticed within this
RETRY_S = 5  # LOOP_S + 2 * RETRY_S must fit into TTL_S
CHECK_S = 0.5  # HAProxy's look at Patroni

# How far a standby may be behind and still be promoted, in bytes. In sync mode the standby that counts is never behind.
LAG_LIMIT = {"sync": 1 << 20, "async": 64 << 20}


class Secrets(NamedTuple):
    superuser: str
    replication: str
    sexton: str


class Place(NamedTuple):
    """Where a node lives."""

    name: str
    folder: Path
    sql_port: int  # of PostgreSQL, for HAProxy
    rest_port: int  # of Patroni
    peer_port: int  # by which the other nodes reach PostgreSQL; the same unless replication goes over a slow link

    @property
    def data(self) -> Path:
        return self.folder / "data"


def patroni(place: Place, mode: Mode, etcd_port: int, postgres_bin: Path, secrets: Secrets) -> str:
    """YAML, of which JSON is a part."""
    document: dict[str, Any] = {
        "scope": "sexton",
        "name": place.name,
        "etcd3": {"host": f"127.0.0.1:{etcd_port}"},
        "restapi": {"listen": f"127.0.0.1:{place.rest_port}", "connect_address": f"127.0.0.1:{place.rest_port}"},
        "watchdog": {"mode": "off"},
        "bootstrap": {
            "dcs": _shared(mode),
            "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
        },
        "postgresql": {
            "listen": f"127.0.0.1:{place.sql_port}",
            "connect_address": f"127.0.0.1:{place.peer_port}",
            "data_dir": str(place.data),
            "bin_dir": str(postgres_bin),
            "pgpass": str(place.folder / "pgpass"),
            "authentication": {
                "superuser": {"username": "postgres", "password": secrets.superuser},
                "replication": {"username": "replicator", "password": secrets.replication},
                "rewind": {"username": "postgres", "password": secrets.superuser},
            },
            "pg_hba": [
                "host replication replicator 127.0.0.1/32 scram-sha-256",
                "host all all 127.0.0.1/32 scram-sha-256",
            ],
            "parameters": {"unix_socket_directories": str(place.folder)},
        },
    }
    return json.dumps(document, indent=1)


def _shared(mode: Mode) -> dict[str, Any]:
    """What all nodes have in common; it lives in etcd."""
    is_sync = mode == "sync"
    return {
        "ttl": TTL_S,
        "loop_wait": LOOP_S,
        "retry_timeout": RETRY_S,
        "maximum_lag_on_failover": LAG_LIMIT[mode],
        # A primary whose postmaster died is not waited for: its recovery takes as long as its last checkpoint is ago, and a
        # standby is ready now.
        "primary_start_timeout": 0,
        "synchronous_mode": is_sync,
        "synchronous_mode_strict": is_sync,  # rather no commit than one that a single machine knows of
        "postgresql": {
            "use_pg_rewind": True,
            "use_slots": True,
            "remove_data_directory_on_rewind_failure": True,  # then it is cloned anew
            "remove_data_directory_on_diverged_timelines": True,
            "parameters": {
                "max_connections": 100,
                "shared_buffers": "128MB",
                "max_wal_size": "256MB",
                "wal_keep_size": "256MB",
                "wal_log_hints": "on",
                "wal_retrieve_retry_interval": "500ms",  # by default a standby looks for its new primary every 5 s
                "synchronous_commit": "on",
                "log_min_messages": "warning",
            },
        },
    }


def haproxy(port: int, places: Sequence[Place]) -> str:
    """One port that is wherever the primary is. Sessions on a server that is no longer it are cut."""
    servers = "\n".join(f"    server {place.name} 127.0.0.1:{place.sql_port} check port {place.rest_port}" for place in places)
    return f"""\
global
    maxconn 400
defaults
    mode tcp
    timeout connect 2s
    timeout client 30m
    timeout server 30m
    timeout check 1s
listen primary
    bind 127.0.0.1:{port}
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter {CHECK_S * 1000:.0f}ms fall 2 rise 1 on-marked-down shutdown-sessions
{servers}
"""


def etcd(program: str, folder: Path, client_port: int, peer_port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    options = {
        "name": "journals",
        "data-dir": str(folder / "data"),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"journals={peer}",
    }
    return [program, *(f"--{name}={value}" for name, value in options.items())]
