"""The configuration of Patroni and HAProxy. The times are short enough to replace a dead node well within 45 s, and long enough
that a busy machine is not taken for a dead node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

Mode = Literal["sync", "async"]
Way = Literal["haproxy", "hosts"]

# TTL of the leader's key in etcd: a node that dies together with its Patroni is replaced after this time at the earliest
TTL_S = 15
LOOP_S = 2  # how often Patroni checks its own PostgreSQL: a dead postmaster is noticed within this time
RETRY_S = 5  # LOOP_S + 2 * RETRY_S must fit into TTL_S
CHECK_S = 0.5  # how often HAProxy checks Patroni

# The replication lag, in bytes, up to which Patroni promotes a standby. In sync mode the synchronous standby has no lag.
LAG_LIMIT = {"sync": 1 << 20, "async": 64 << 20}


class Secrets(NamedTuple):
    superuser: str
    replication: str
    sexton: str


class Place(NamedTuple):
    """The folder and the ports of a node."""

    name: str
    folder: Path
    sql_port: int  # of PostgreSQL, for HAProxy
    rest_port: int  # of Patroni
    peer_port: int  # port by which the other nodes reach PostgreSQL; the same as above unless replication uses a slow link

    @property
    def data(self) -> Path:
        return self.folder / "data"


def patroni(place: Place, mode: Mode, etcd_port: int, postgres_bin: Path, secrets: Secrets) -> str:
    """Writes JSON, which is valid YAML."""
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
    """The configuration that all nodes share; it is stored in etcd."""
    is_sync = mode == "sync"
    return {
        "ttl": TTL_S,
        "loop_wait": LOOP_S,
        "retry_timeout": RETRY_S,
        "maximum_lag_on_failover": LAG_LIMIT[mode],
        # Patroni does not wait for a primary whose postmaster died: its recovery replays everything since the last checkpoint,
        # and a standby is ready now.
        "primary_start_timeout": 0,
        "synchronous_mode": is_sync,
        "synchronous_mode_strict": is_sync,  # a commit fails if only one machine has it
        "postgresql": {
            "use_pg_rewind": True,
            "use_slots": True,
            "remove_data_directory_on_rewind_failure": True,  # if rewinding fails, the node is cloned again
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
    """One port that always leads to the primary. HAProxy cuts sessions on a server that is no longer the primary."""
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
