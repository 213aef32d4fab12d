"""Settings: read once at the edge from `SEXTON_*` variables or `sexton.toml`, then passed in as frozen objects. Units are in
the names; nothing reads the environment at import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, InstanceOf, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from sexton.domain.fault import Invalid
from sexton.domain.outbound import Allowed, Ports, Rules
from sexton.domain.queue_order import WEIGHT_LIMIT, QueueOrder, queue_order
from sexton.domain.targets.command import Command, commands


class Settings(BaseSettings):
    """Every default is here, with its unit and its reason."""

    model_config = SettingsConfigDict(
        env_prefix="SEXTON_",
        env_ignore_empty=True,  # SEXTON_API_PORT= in a compose file means "not set"
        toml_file="sexton.toml",
        frozen=True,
        extra="forbid",
    )

    database_url: SecretStr | None = None  # required by services; none: App, dev and commands use the embedded one
    direct_url: SecretStr | None = None  # a direct connection without the pooler, for LISTEN and advisory locks
    data_dir: Path | None = None  # folder of the embedded PostgreSQL; none: sexton in the user's data folder
    pool_size: int = Field(default=4, ge=1, le=200)  # connections per process, plus those for listener and heartbeat
    transaction_pool_size: int = Field(default=8, ge=1, le=200)  # extra connections of a worker for ctx.transaction()
    notify: bool = True  # submissions wake idle workers; off: they poll

    api_host: str = Field(default="127.0.0.1", min_length=1)  # loopback, because every caller of the API may do everything
    api_port: int = Field(default=8474, ge=0, le=65_535)  # 0: any free port
    api_url: SecretStr | None = None  # URL of the API for the command line; none: it uses the database directly
    api_connection_limit: int = Field(default=10_000, ge=1, le=1_000_000)  # at once; above it the longest idle one is closed
    api_receive_s: float = Field(default=20.0, gt=0)  # to receive a request; long bodies: at least 16 KiB/s
    api_request_limit: int = Field(default=1_000, ge=1, le=100_000)  # requests in progress at once; more get 503
    api_body_mib: int = Field(default=128, ge=32, le=65_536)  # of all request bodies in progress together; more get 503
    public_url: str | None = None  # for callbacks of long HTTP jobs: https://sexton.example; none: 202 ends the run
    strict_tasks: bool = False  # reject a job for a task that no live worker knows, instead of a warning

    worker_concurrency: int = Field(default=100, ge=1, le=10_000)  # runs at once in one worker process
    worker_processes: int = Field(default=2, ge=1, le=512)  # child processes for tasks with process=True
    worker_queues: Annotated[tuple[str, ...], NoDecode] = ("default",)  # mail,default equally; mail:3,default:1; mail>default
    worker_queue_weights: Annotated[tuple[int, ...], NoDecode] = ()  # for worker_queues without weights; none: equal
    worker_queues_strict: bool = False  # always the first queue that has work, as with mail>default
    worker_grace_s: float = Field(default=10.0, ge=0)  # between asking a handler to stop and forcing it to stop
    worker_drain_s: float = Field(default=25.0, ge=0)  # to finish runs at SIGTERM; below the 30 s of Kubernetes
    worker_zombie_limit: int = Field(default=8, ge=1)  # handlers that do not stop, before the worker drains and exits

    scripts: Annotated[dict[str, InstanceOf[Command]], NoDecode] = {}  # commands that jobs may run, by name
    grpc_descriptors: dict[str, Path] = {}  # descriptor set files for servers without reflection, by name
    grpc_roots: Path | None = None  # CA certificates for gRPC servers, as PEM; none: the system's

    secrets_dir: Path | None = None  # folder with one file per secret; besides SEXTON_SECRET_<NAME>
    outbound_allow: Annotated[tuple[str, ...], NoDecode] = ()  # private targets: 10.1.0.0/16, billing:9000, *.svc.local
    outbound_ports: Annotated[tuple[str, ...], NoDecode] = ("80", "443", "8080", "8443")  # of public hosts; or 8000-8999
    outbound_proxy: SecretStr | None = None  # http://proxy:3128: for all HTTP jobs; it resolves their hosts
    http_host_limit: int | None = Field(default=None, ge=1)  # calls to one host at once; none: a third of worker_concurrency
    http_host_failures: int = Field(default=5, ge=1)  # failures in a row after which calls to the host are blocked
    http_host_rest_s: float = Field(default=5.0, gt=0)  # first block of a failing host; it doubles each time
    http_host_rest_max_s: float = Field(default=60.0, gt=0)  # longest block of a failing host
    http_ca_file: Path | None = None  # CA certificates to trust instead of the system's

    lease_s: float = Field(default=4.5, gt=0)  # a worker without a heartbeat for this long is dead: 4.5 beats
    beat_s: float = Field(default=1.0, gt=0)  # between two heartbeats of a busy worker; twice that when idle
    loop_stall_s: float = Field(default=4.0, gt=0)  # if the event loop hangs longer, the worker stops its heartbeats
    sweep_s: float = Field(default=0.5, gt=0)  # between two checks for dead workers and timeouts; 2 s while nothing runs
    poll_s: float = Field(default=2.0, gt=0)  # between two polls of an idle worker; values above 2 count as 2
    pooled_poll_s: float = Field(default=0.25, gt=0)  # the same without notifications (behind a pooler)
    promote_limit: int = Field(default=2000, ge=1, le=20_000)  # runs promoted per statement
    plan_limit: int = Field(default=1000, ge=1, le=20_000)  # schedules planned in one pass

    # At most 50 years: an instant before 1970 has no UUIDv7, and every partition would look old.
    history_days: int = Field(default=90, ge=1, le=18_250)  # retention of executions, endings and one-time jobs
    dead_letter_days: int = Field(default=30, ge=1, le=18_250)  # retention of dead letters

    @property
    def queue_order(self) -> QueueOrder:
        """In which order a worker reads its queues."""
        weights = self.worker_queue_weights or (1,) * len(self.worker_queues)
        return QueueOrder(self.worker_queues, weights, self.worker_queues_strict)

    @model_validator(mode="before")
    @classmethod
    def _ordered(cls, values: Any) -> Any:
        """`SEXTON_WORKER_QUEUES=mail:3,default:1` is names and weights."""
        given = values.get("worker_queues") if isinstance(values, dict) else None
        if not isinstance(given, str | list):
            return values
        try:
            order = queue_order(given)
        except Invalid:
            return values  # the validator of the field reports it
        weighed = {"worker_queue_weights": order.weights} if len(set(order.weights)) > 1 else {}
        strict = {"worker_queues_strict": True} if order.strict else {}
        return {**values, "worker_queues": order.names, **weighed, **strict}

    @field_validator("worker_queues", mode="before")
    @classmethod
    def _names_queues(cls, value: object) -> object:
        if not isinstance(value, str | list | tuple):
            return value
        try:
            return queue_order(value).names
        except Invalid as fault:
            raise ValueError(fault.message) from None

    @property
    def outbound_rules(self) -> Rules:
        """Which hosts jobs may call."""
        return Rules(tuple(Allowed.of(entry) for entry in self.outbound_allow), Ports.of(self.outbound_ports))

    @field_validator("outbound_allow", "outbound_ports", mode="before")
    @classmethod
    def _names_places(cls, value: object, info: ValidationInfo) -> object:
        """`SEXTON_OUTBOUND_ALLOW=10.1.0.0/16,billing.internal`"""
        words = value.split(",") if isinstance(value, str) else value
        if not isinstance(words, list | tuple):
            return value
        places = tuple(str(word).strip() for word in words if str(word).strip())
        try:
            _ = Ports.of(places) if info.field_name == "outbound_ports" else [Allowed.of(place) for place in places]
        except Invalid as fault:
            raise ValueError(fault.message) from None
        return places

    @field_validator("outbound_proxy", mode="after")
    @classmethod
    def _names_a_proxy(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        return value

    @field_validator("worker_queue_weights", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """`SEXTON_WORKER_QUEUE_WEIGHTS=3,1`"""
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("scripts", mode="before")
    @classmethod
    def _lists_commands(cls, value: object) -> object:
        """`SEXTON_SCRIPTS={"backup": {"argv": ["/usr/bin/backup"]}}`"""
        try:
            return commands(json.loads(value) if isinstance(value, str) else value)
        except json.JSONDecodeError as error:
            raise ValueError(f"is not valid JSON: {error}") from None
        except Invalid as fault:
            raise ValueError(str(fault)) from None

    @model_validator(mode="after")
    def _weights_fit_the_queues(self) -> Self:
        weights = self.worker_queue_weights
        if weights and (len(weights) != len(self.worker_queues) or not all(1 <= weight <= WEIGHT_LIMIT for weight in weights)):
            raise ValueError(
                f"worker_queue_weights must have one whole number from 1 to {WEIGHT_LIMIT:,} for each of worker_queues"
            )
        return self

    @model_validator(mode="after")
    def _beats_fit_the_lease(self) -> Self:
        if 2 * self.beat_s > self.lease_s:
            raise ValueError(
                f"lease_s of {self.lease_s:g} is too short for a missed heartbeat; it must be at least twice beat_s"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)
