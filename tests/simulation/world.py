"""A small cluster in one thread: real services on real PostgreSQL, one statement in flight, a seed for every choice, and time
that moves only between steps. The same seed gives the same history."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID

import asyncpg

from sexton import clock as product_clock
from sexton.domain.schedule import zone
from sexton.domain.sharing import TenantSettings
from sexton.errors import Contention, DatabaseUnavailable
from sexton.operations import tenants
from sexton.operations.recurring import plan
from sexton.store.work import schedules
from sexton.telemetry import events
from tests import transitions
from tests.callers import TESTER

from . import claim_monitor, invariants, process_faults, zone_update
from .actors import NEWER, TASKS, Action, Actor, SchedulerActor, WorkerActor
from .admin import OWNED, AdminActor
from .client import ClientActor
from .clocks import NodeClock, UnsteadyClock
from .fault_profile import FaultProfile
from .faults import FLAWS_OF_THE_LINE, Crash, Draw, Fault, FaultyDatabase
from .journal import Journal
from .locks import LockTable
from .model import Model
from .notifications import Notifications
from .open_transactions import OpenTransactions, impatient
from .quarantine import QuarantineActor
from .schedule_client import ScheduleClientActor
from .sessions import PREPARE as PREPARE_SESSIONS
from .sessions import Sessions
from .thresholds import lowered_thresholds

START = datetime(2026, 3, 1, tzinfo=UTC)
FAULTY_STEP_COUNT = 700
# Time between two steps. Slow enough for every service to keep its interval of a second or two; faster while only the end is
# awaited.
BRISK_S = [0.0, 0.0, 0.01, 0.05, 0.1, 0.4]
CALM_S = [0.0, 0.05, 0.3, 1.0]
STUCK_S = 180.0  # no run starts or ends for so long, though there is no fault left: each sweeper has had many turns by then
# More faults at the statements where they can do most harm.
TENDER, TENDER_ACTIONS = 4, {"submit", "intake", "second hand", "handler", "reporter"}
# Where a process may pause: between what it read and what it writes.
HALTS, HALT_RATE, HALT_S = ("plan", "unplanned"), 0.4, (0.1, 1.0, 6.0, 15.0)
# Short compared with the life of a simulated schedule, so that it is planned many times.
HORIZON, LEAD_S = timedelta(seconds=6), (1.0, 5.0)
DAY_S = 86_400.0

_PREPARE = """
DO $$ DECLARE child regclass; BEGIN  -- those of today: simulated time has its own, and the product makes what it misses
  FOR child IN SELECT inhrelid::regclass FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent
             WHERE p.relkind = 'p' AND NOT inhrelid::regclass::text ~ 'recurring' LOOP
    EXECUTE format('DROP TABLE %s', child);
  END LOOP;
END $$;
CREATE SEQUENCE public.simulated_ids;
CREATE OR REPLACE FUNCTION sexton.uuid7(micros bigint) RETURNS uuid LANGUAGE sql VOLATILE AS $$
  SELECT encode(int8send(((micros / 1000) << 16) | 28672 | ((micros % 1000) * 4096 / 1000))
                || int8send((-9223372036854775808)::bigint | nextval('public.simulated_ids')), 'hex')::uuid
$$;
CREATE OR REPLACE FUNCTION sexton.dice() RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT nextval('public.simulated_ids') $$;
CREATE TABLE public.effects (job_id uuid NOT NULL);
CREATE OR REPLACE FUNCTION sexton.patience() RETURNS interval LANGUAGE sql IMMUTABLE AS $$ SELECT interval '8 seconds' $$;
"""


class World:
    def __init__(self, url: str, seed: int, *, job_limit: int = 40) -> None:
        self.seed, self.job_limit = seed, job_limit
        self.rng = Random(seed)
        self.fault_profile = FaultProfile.of(self.rng)
        # When schedulers are restarted with new time zone data; the second one may never be.
        self.upgrades_s = [self.rng.uniform(20, 70), self.rng.uniform(40, 200)]
        self.halt_rate = HALT_RATE
        self.clock_set_forward_s = -1.0  # when the database's clock was last set forward
        self.clock = UnsteadyClock(START)
        self.model = Model()
        self.journal = Journal(self)
        self.tasks_known: dict[UUID, tuple[str, ...]] = {}  # by worker id
        self.claim_monitor = claim_monitor.ClaimMonitor(
            knows=lambda worker_id, task: task in self.tasks_known[worker_id],
            seen=lambda what: self.journal.seen.update([what]),
            violated=self.journal.violations.append,
        )
        self.notifications = Notifications(self.rng, lambda what: self.journal.seen.update([what]))
        self.has_locks = self.rng.random() < 0.7  # otherwise as behind a pooler
        self.locks = LockTable(self.clock.monotonic)
        self.sessions = Sessions(self)
        self.faults_on = True
        self.history: list[str] = []
        self.statement_count = self.step_count = 0
        self.checked = (-1, "")  # the number of statements and the next transaction id at the last check of the invariants
        self.unchecked_count = 0  # steps since then, as `invariants` counts them
        self.live_count = 0
        self.suspects_wait = False
        self.actors: list[Actor] = []
        self._url = url
        self._ids = count(1)
        self._names = count(1)
        self._outage_until_s: float | None = None
        # the actors that have just come back, and how many actions they do next
        self._rush: tuple[list[Actor], int] | None = None
        self.acting = ""  # the current action
        self._clock: NodeClock | None = None  # of the process that acts
        self._contended: set[str] = set()  # actions that waited for another transaction
        self._halt: asyncio.Future[asyncio.Future[None]] | None = None  # set when the current step pauses
        self.client: ClientActor
        self.schedule_client: ScheduleClientActor
        self.admin: AdminActor
        self._wall_clock = patch.object(product_clock, "host_now", self._read_wall_clock)
        self._usual = plan.HORIZON, plan.LEAD_S
        self._thresholds = lowered_thresholds(self.journal.seen, is_dear=seed % 2 == 1)
        self.wall_times = zone_update.WallTimes()
        self._usual_release = zone.release

    async def __aenter__(self) -> World:
        # Its one long query is planned once: a plan per step would cost more than all the rest.
        self.observer: Any = await asyncpg.connect(self._url, server_settings={"plan_cache_mode": "force_generic_plan"})
        await self.observer.execute(_PREPARE + PREPARE_SESSIONS)
        await transitions.install(self.observer)
        await self.observer.execute(claim_monitor.INSTALL)
        self.session: int = self.observer.get_server_pid()  # owner of all simulated locks: a live session
        for channel in ("sexton_ready", "sexton_due", "sexton_plan"):
            await self.observer.add_listener(channel, self.notifications.hear)
        self._real = await impatient(self._url)
        self.open_transactions = OpenTransactions(self, await asyncpg.connect(self._url))
        async with self._real.transaction() as connection:
            await tenants.put(connection, TESTER, OWNED, TenantSettings(running_max=2), now=START)
        self._wall_clock.start()
        plan.HORIZON, plan.LEAD_S = HORIZON, LEAD_S
        self._thresholds.__enter__()
        zone.release = zone_update.OLD
        self.client, self.schedule_client, self.admin = ClientActor(self), ScheduleClientActor(self), AdminActor(self)
        self.actors = [self.client, self.schedule_client, self.admin]
        self.actors += [SchedulerActor(self, self._name("scheduler")) for _ in range(2)]
        # all workers but the first have not been restarted with the new task yet
        older = tuple(task for task in TASKS if task != NEWER)
        self.actors += [WorkerActor(self, self._name("worker"), tasks) for tasks in (TASKS, older, older)]
        return self

    async def __aexit__(self, *_: object) -> None:
        plan.HORIZON, plan.LEAD_S = self._usual
        self._thresholds.__exit__(None, None, None)
        zone.release = self._usual_release
        self._wall_clock.stop()
        for actor in self.actors:
            await self._let_go(actor)
        await self.open_transactions.close()
        await self._real.close()
        await self.observer.close()

    # What actors need from the world

    def database_for(self, actor: Actor) -> FaultyDatabase:
        end = partial(self.sessions.end_of, actor)
        return FaultyDatabase(self._real, self.draw_for(actor), actor.answered, self._breathe, end)

    def draw_for(self, actor: Actor) -> Draw:
        return lambda in_transaction: self._draw(actor, in_transaction)

    def clock_of_a_node(self) -> NodeClock:
        return NodeClock(self.clock, self.rng.uniform(-DAY_S, DAY_S))

    def release(self) -> zone.Release:
        """The time zone data of a scheduler that starts now."""
        return zone_update.NEW if self.clock.monotonic() >= self.upgrades_s[0] else zone_update.OLD

    def new_id(self) -> UUID:
        return UUID(int=next(self._ids) << 64)

    def heard(self, event: events.Event) -> None:
        self.journal.seen[type(event).__name__] += 1
        match event:
            case events.Claimed(worker_id):
                self.journal.claimed(worker_id)
                self.journal.seen["claimed by the second hand"] += self.acting == "second hand"
            case events.WorkerLost(worker_id, _, reason):
                self.journal.worker_lost(worker_id, reason)
            case events.Ended(worker_id, _, run_id, token, _, status):
                self.journal.accepted.append((run_id, worker_id, token, status))
                self.journal.last_progress_s = self.clock.monotonic()
            case events.DeclaredLost(worker_id):
                self.journal.told_dead.add(worker_id)
            case events.SlotsRepaired(count):
                self.journal.violations.append(f"no slot is left behind: {count} were mended")
            case events.LeaseLost(worker_id, _, run_id, token):
                self.journal.refused_by(worker_id, run_id, token)
            case _:
                pass

    def note(self, what: str) -> None:
        self.history.append(f"{self.clock.monotonic():8.2f} {what}")

    def break_off(self, until_s: float) -> None:
        """No process reaches the database until then."""
        self._outage_until_s = self._outage_until_s or until_s
        self.sessions.end_all()

    def set_clock(self, span: timedelta) -> None:
        """The time of the database's clock."""
        self.clock.step(span)
        if span > timedelta():
            self.clock_set_forward_s = self.clock.monotonic()

    def is_rushing(self, actor: Actor) -> bool:
        return self._rush is not None and actor in self._rush[0]

    def live_workers(self) -> list[WorkerActor]:
        return [actor for actor in self.actors if isinstance(actor, WorkerActor)]

    # One run of the cluster

    async def run(self) -> None:
        for _ in range(FAULTY_STEP_COUNT):
            await self.step()
        self.faults_on = False  # no new faults; those that have begun end by themselves
        quiet_since_s = self.clock.monotonic()
        while await self.step() or not self._at_rest() or await invariants.live_count(self):
            if self.clock.monotonic() - max(quiet_since_s, self.journal.last_progress_s) > STUCK_S:
                break
        await invariants.check_end(self)

    async def step(self) -> int:
        """Returns the number of live runs."""
        self.step_count += 1
        await self._upgrade()
        actor, action = self._next()
        await self.sessions.settle()
        self.acting, self._clock, zone.release = action.name, actor.clock, actor.release
        self.note(f"{actor.name} {action.name}")
        if action.woken is not None:
            action.woken.clear()
        try:
            rest_s = await self._act(action)
            self.journal.seen["contention overcome"] += action.name in self._contended
            self._contended.discard(action.name)
        except DatabaseUnavailable:
            rest_s = self.rng.uniform(0.05, 1.0)
        except Contention:
            self._contended.add(action.name)
            rest_s = self.rng.uniform(0.05, 1.0)
        except Crash:
            self.journal.seen["crashed"] += 1
            await self._let_go(actor)
            self.replace(actor)
            rest_s = 0.0
        action.due_s = self.clock.monotonic() + rest_s
        await asyncio.sleep(0)  # callbacks of handlers that ended
        await self.open_transactions.act()
        live_count = await invariants.check(self)
        for name in self.notifications.due(faulty=self.faults_on):
            for one in self.actors:
                one.wake(name)
        if self._rush is None:
            self._pass_time()
        return live_count

    async def _act(self, action: Action) -> float:
        """To its end, or until it pauses between two statements; then the next call continues it."""
        self._halt = asyncio.get_running_loop().create_future()
        if action.halfway is None:
            task = asyncio.ensure_future(action.run())
        else:
            task, go_on = action.halfway
            action.halfway = None
            go_on.set_result(None)
        either: list[asyncio.Future[Any]] = [task, self._halt]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        action.halfway = (task, self._halt.result())
        self.journal.seen[f"{action.name} halfway"] += 1
        return self.rng.choice(HALT_S)

    async def _breathe(self, query: str) -> None:
        is_deed = self.faults_on and any(query == schedules._SQL[name] for name in HALTS)
        if is_deed and self._halt is not None and self.rng.random() < self.halt_rate:
            go_on: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._halt.set_result(go_on)
            await go_on

    async def _upgrade(self) -> None:
        """Restarts a scheduler that still has the old data, when it is time."""
        older = [one for one in self.actors if isinstance(one, SchedulerActor) and one.release is zone_update.OLD]
        newer_count = sum(isinstance(one, SchedulerActor) for one in self.actors) - len(older)
        if older and self.clock.monotonic() >= self.upgrades_s[min(newer_count, 1)]:
            self.note(f"{older[0].name} is upgraded")
            self.journal.seen["scheduler upgraded"] += 1
            await self._let_go(older[0])
            self.replace(older[0])

    async def _let_go(self, actor: Actor) -> None:
        """Ends its process, also if it is paused."""
        for action in actor.actions:
            if action.halfway is not None:
                action.halfway[0].cancel()
                await asyncio.wait([action.halfway[0]])
                action.halfway = None
        if isinstance(actor, SchedulerActor) and self.has_locks:  # its session ends with it, and the other schedulers notice it
            self.locks.drop(actor)
            await self.observer.fetch("UPDATE sexton.nodes SET session = 1 WHERE id = $1", actor.node_id)

    def _next(self) -> tuple[Actor, Action]:
        now = self.clock.monotonic()
        if self._outage_until_s is not None and self._outage_until_s <= now:
            self._outage_until_s = None
            awake = [actor for actor in self.actors if not actor.is_paused]
            for actor in awake:
                actor.wake("heartbeat", "sweeper")  # as if all had been about to try again
            self._begin_rush(awake, self.rng.randint(4, 12))
        for actor in self.actors:
            if actor.resume(now):
                self._begin_rush([actor], self.rng.randint(1, 10))
        rushing = self._rushing(now)
        if rushing is not None:
            return rushing
        ready = [
            (actor, action) for actor in self.actors if not actor.is_paused for action in actor.actions if action.is_due(now)
        ]
        if not ready:
            self._move(0.25)
            return self._next()
        # A heartbeat has a thread of its own: only a fault may delay it.
        late = [(actor, action) for actor, action in ready if action.name == "heartbeat" and action.due_s < now - 1.0]
        return self._pick(late or ready)

    def _begin_rush(self, actors: list[Actor], step_count: int) -> None:
        """Actions that waited for the end of a pause or an outage happen at once, in any order: a worker may report before it
        learns that it is dead, or stop its work before either; a sweeper may look before any heartbeat is sent."""
        for actor in actors:
            if self.rng.random() < 0.2:
                actor.feel_time()
        others, left = self._rush or ([], 0)
        self._rush = (others + actors, left + step_count)

    def _rushing(self, now: float) -> tuple[Actor, Action] | None:
        if self._rush is None:
            return None
        actors, left = self._rush
        ready = [(actor, action) for actor in actors if actor.alive for action in actor.actions if action.is_due(now)]
        if not ready or not left:
            self._rush = None
            for actor in actors:
                actor.feel_time()
            return None
        self._rush = (actors, left - 1)
        return self._pick(ready)

    def _pick(self, ready: list[tuple[Actor, Action]]) -> tuple[Actor, Action]:
        return self.rng.choices(ready, weights=[action.weight() for _, action in ready])[0]

    def _pass_time(self) -> None:
        self._move(self.rng.choice(BRISK_S if self.faults_on else CALM_S))
        if self.faults_on and self.rng.random() < self.fault_profile.process_fault_rate:
            process_faults.make(self)
        if self.faults_on:
            self.sessions.make_fault()

    def _move(self, span_s: float) -> None:
        self.clock.move(timedelta(seconds=span_s))
        for actor in self.actors:
            if not actor.is_paused:
                actor.feel_time()

    def _draw(self, actor: Actor, in_transaction: bool) -> Fault:
        self.statement_count += 1
        now = self.clock.monotonic()
        if (self._outage_until_s is not None and now < self._outage_until_s) or now < actor.partitioned_until_s:
            return Fault.REFUSED
        rate = self.fault_profile.fault_rate * (TENDER if self.acting in TENDER_ACTIONS else 1)
        if not self.faults_on or self.rng.random() > rate:
            return Fault.NONE
        is_person = isinstance(actor, ClientActor | ScheduleClientActor | AdminActor)
        fault = self.rng.choice(FLAWS_OF_THE_LINE if is_person else self.fault_profile.faults)
        if self.acting in ("heartbeat", "sweeper"):
            self._hit_its_session(actor, fault)
        self.journal.seen[str(fault)] += 1
        self.journal.seen["connection dropped inside a transaction"] += in_transaction and fault is Fault.REFUSED
        self.note(f"FAULT {actor.name}: {fault}")
        return fault

    def _hit_its_session(self, actor: Actor, fault: Fault) -> None:
        if isinstance(actor, WorkerActor):
            actor.hindered_s = self.clock.monotonic()
        if fault in (Fault.REFUSED, Fault.REPLY_LOST):
            self.sessions.end(actor)

    def replace(self, dead: Actor) -> None:
        """A process ends and loses its memory; its supervisor starts a new one."""
        dead.alive = False
        self.sessions.end(dead, is_told=False)
        index = self.actors.index(dead)
        match dead:
            case QuarantineActor():
                del self.actors[index]
                dead.parent.child = None
                if not dead.has_left:
                    dead.parent.ended_children.append(dead.worker.worker_id)
            case WorkerActor():
                self.actors[index] = WorkerActor(self, self._name("worker"))
                if dead.child is not None:  # it ends with its parent
                    self.journal.seen["child lost with its parent"] += bool(dead.child.running)
                    dead.child.alive = False
                    self.sessions.end(dead.child, is_told=False)
                    self.actors.remove(dead.child)
            case SchedulerActor():
                self.actors[index] = SchedulerActor(self, self._name("scheduler"))
            case _:
                pass

    def start_child(self, parent: WorkerActor) -> None:
        parent.child = QuarantineActor(self, self._name("quarantine"), parent)
        self.actors.append(parent.child)
        self.journal.seen["child started"] += 1

    def _name(self, kind: str) -> str:
        return f"{kind}-{next(self._names)}"

    def _read_wall_clock(self) -> datetime:
        """No service uses it: the wall clock of a node decides nothing."""
        self.journal.violations.append(f"no service reads the clock of its node: {self.acting} did")
        return self.clock.database_now() if self._clock is None else self._clock.wall()

    def _at_rest(self) -> bool:
        """All events have happened, including late reports."""
        return (
            self.journal.submitted_count >= self.job_limit
            and self.schedule_client.is_done
            and self.client.is_done
            and self.admin.is_done
            and not any(actor.is_paused for actor in self.actors)
            and not any(len(worker.worker.held_runs) for worker in self.live_workers())
        )
