"""Settings: read once at the edge from `SEXTON_*` variables or `sexton.toml`, then passed in as frozen objects. Units are in
the names; nothing reads the environment at import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from sexton.domain.fault import Invalid
from sexton.domain.queue_order import WEIGHT_LIMIT, QueueOrder, queue_order


class Settings(BaseSettings):
    """Every default is here, with its unit and its reason."""

    model_config = SettingsConfigDict(env_prefix="SEXTON_", toml_file="sexton.toml", frozen=True, extra="forbid")

    database_url: SecretStr | None = None  # services need it; none: App, dev and the commands use the embedded one in data_dir
    direct_url: SecretStr | None = None  # a way around the pooler, for LISTEN and advisory locks
    data_dir: Path | None = None  # of the embedded PostgreSQL; none: sexton in the user's data folder
    pool_size: int = Field(default=4, ge=1, le=200)  # connections of one process, besides the listener's and the heartbeat's
    transaction_pool_size: int = Field(default=8, ge=1, le=200)  # more, in a worker, for handlers in ctx.transaction()
    notify: bool = True  # submissions wake idle workers; off: they poll

    api_host: str = Field(default="127.0.0.1", min_length=1)  # loopback: whoever reaches the API may do everything
    api_port: int = Field(default=8474, ge=0, le=65_535)  # 0: any free one
    api_url: SecretStr | None = None  # where the command line finds the API; none: it works on the database itself
    api_connection_limit: int = Field(default=10_000, ge=1, le=1_000_000)  # at once; then who waits longest for nothing goes
    api_receive_s: float = Field(default=20.0, gt=0)  # for a request to come, head and body; a long body has 16 KiB/s
    api_request_limit: int = Field(default=1_000, ge=1, le=100_000)  # under way at once; more are answered 503
    api_body_mib: int = Field(default=128, ge=32, le=65_536)  # of all bodies under way together; more are answered 503
    public_url: str | None = None  # where targets of long HTTP jobs reach the API: https://sexton.example; none: 202 ends them
    strict_tasks: bool = False  # refuse a job for a task that no live worker knows, instead of warning

    worker_concurrency: int = Field(default=100, ge=1, le=10_000)  # runs at once in one worker process
    worker_processes: int = Field(default=2, ge=1, le=512)  # child processes for tasks with process=True
    worker_queues: Annotated[tuple[str, ...], NoDecode] = ("default",)  # mail,default alike; mail:3,default:1; mail>default
    worker_queue_weights: Annotated[tuple[int, ...], NoDecode] = ()  # of worker_queues, if they say none; none: alike
    worker_queues_strict: bool = False  # the first queue that has work, always: the same as mail>default
    worker_grace_s: float = Field(default=10.0, ge=0)  # between asking a handler to stop and forcing it
    worker_drain_s: float = Field(default=25.0, ge=0)  # below the 30 s that Kubernetes waits by default
    worker_zombie_limit: int = Field(default=8, ge=1)  # threads that ignore their end before the worker drains and exits

    lease_s: float = Field(default=4.5, gt=0)  # silence after which a worker is dead: four beats and a half
    beat_s: float = Field(default=1.0, gt=0)  # between two heartbeats of a worker that holds something; else twice that
    loop_stall_s: float = Field(default=4.0, gt=0)  # an event loop that hangs longer silences the heartbeat
    sweep_s: float = Field(default=0.5, gt=0)  # between two looks for dead workers and overrun timeouts; 2 s while nothing runs
    poll_s: float = Field(default=2.0, gt=0)  # an idle look without being woken; a promoter waits 2 s at most (rule 12)
    pooled_poll_s: float = Field(default=0.25, gt=0)  # the same where notifications cannot pass
    promote_limit: int = Field(default=2000, ge=1, le=20_000)  # runs per promoting statement
    plan_limit: int = Field(default=1000, ge=1, le=20_000)  # schedules planned in one pass

    history_days: int = Field(default=90, ge=1)  # executions, endings and one-time jobs; dropped by partition
    dead_letter_days: int = Field(default=30, ge=1)  # then they are discarded

    @property
    def queue_order(self) -> QueueOrder:
        """In which order a worker looks into its queues."""
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
            return values  # said beside its field, below
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

    @field_validator("worker_queue_weights", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """`SEXTON_WORKER_QUEUE_WEIGHTS=3,1`"""
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _weights_fit_the_queues(self) -> Self:
        weights = self.worker_queue_weights
        if weights and (len(weights) != len(self.worker_queues) or not all(1 <= weight <= WEIGHT_LIMIT for weight in weights)):
            raise ValueError(f"worker_queue_weights gives each of worker_queues a whole number between 1 and {WEIGHT_LIMIT:,}")
        return self

    @model_validator(mode="after")
    def _beats_fit_the_lease(self) -> Self:
        if 2 * self.beat_s > self.lease_s:
            raise ValueError(f"lease_s of {self.lease_s:g} leaves no room for a missed beat; beat_s may be half of it at most")
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
