"""What follows an outcome: every rule of the retry policy, and the properties of all rules."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sexton.domain.fault import Invalid
from sexton.domain.outcome import (
    Cancelled,
    ErrorInfo,
    Failed,
    Lost,
    Missed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    TimedOut,
)
from sexton.domain.retry import Bury, Finish, Retry, RetryIn, RetryState, decide

RNG = Random(7)
FLAKY = Failed(ErrorInfo("ValueError", "flaky", kinds=("ValueError", "Exception")))


def _waits(retry: Retry, count: int = 6) -> list[float]:
    return [msgspec.structs.replace(retry, jitter=0.0).delay_s(attempt, RNG) for attempt in range(1, count + 1)]


def test_waits_of_every_backoff() -> None:
    """C5: immediate, linear, exponential with a factor, or a list; capped."""
    assert _waits(Retry()) == [30, 60, 120, 240, 480, 960]
    assert _waits(Retry.immediate()) == [0] * 6
    assert _waits(Retry.linear(base="10s", max="35s")) == [10, 20, 30, 35, 35, 35]
    assert _waits(Retry.exponential(base="1s", factor=3, max="30s")) == [1, 3, 9, 27, 30, 30]
    assert _waits(Retry.after("1s", "5s", "30s", "5m", "1h"), 5) == [1, 5, 30, 300, 3600]


def test_a_list_of_delays_is_one_attempt_more() -> None:
    """C5."""
    assert Retry.after("1s", "5s", "30s", "5m", "1h").max_attempts == 6
    assert Retry.never().max_attempts == 1


retries = st.one_of(
    st.builds(Retry.immediate, max_attempts=st.integers(1, 1000)),
    st.builds(
        Retry.linear,
        base=st.floats(0, 1e6),
        max=st.floats(0, 1e6),
        max_attempts=st.integers(1, 1000),
        jitter=st.floats(0, 0.25),
    ),
    st.builds(
        Retry.exponential,
        base=st.floats(0, 1e6),
        factor=st.floats(1, 1000),
        max=st.floats(0, 1e6),
        max_attempts=st.integers(1, 1000),
        jitter=st.floats(0, 0.25),
    ),
    st.lists(st.floats(0, 1e6), min_size=1, max_size=8).map(lambda delays: Retry.after(*delays)),
)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Succeeded()),
    st.just(Cancelled()),
    st.builds(Snoozed, st.floats(0, 1e6)),
    st.just(Released("r")),
    st.just(Lost("l")),
    st.just(Missed("m")),
    st.just(TimedOut("t")),
    st.builds(Failed, st.just(FLAKY.error), st.booleans(), st.none() | st.floats(0, 1e6)),
)
standings = st.builds(
    RetryState,
    attempt=st.integers(1, 1001),
    lost_count=st.integers(0, 10),
    retry=retries,
    max_lost=st.integers(1, 10),
    at_most_once=st.booleans(),
    deadline_left_s=st.none() | st.floats(-1e3, 1e6),
    replay_count=st.integers(0, 5),
)


@given(retries, st.integers(1, 1000), st.integers())
def test_a_wait_is_finite_within_the_cap_and_the_jitter(retry: Retry, attempt: int, seed: int) -> None:
    """C5: random jitter of at most 25 % on a wait of at most `max`; every number of attempts."""
    plain_s = msgspec.structs.replace(retry, jitter=0.0).delay_s(attempt, RNG)
    waited_s = retry.delay_s(attempt, Random(seed))
    assert 0 <= plain_s <= (max(retry.delays_s) if retry.backoff == "list" else retry.max_s)
    assert plain_s * (1 - retry.jitter) - 1e-9 <= waited_s <= plain_s * (1 + retry.jitter) + 1e-9


@given(retries, st.integers(1, 999))
def test_waits_never_shrink_except_in_a_list(retry: Retry, attempt: int) -> None:
    """C5."""
    assume(retry.backoff != "list")
    plain = msgspec.structs.replace(retry, jitter=0.0)
    assert plain.delay_s(attempt, RNG) <= plain.delay_s(attempt + 1, RNG)


@given(st.integers())
def test_the_same_seed_gives_the_same_wait(seed: int) -> None:
    """F6: one seed replays a failure."""
    assert Retry().delay_s(3, Random(seed)) == Retry().delay_s(3, Random(seed))


def test_jitter_spreads() -> None:
    """C5: a thousand failures at once do not come back at once."""
    rng = Random(1)
    waits = {Retry().delay_s(1, rng) for _ in range(1000)}
    assert len(waits) > 900
    assert min(waits) < 24
    assert max(waits) > 36


@given(outcomes, standings, st.integers())
def test_every_outcome_in_every_state_has_a_valid_consequence(outcome: Outcome, state: RetryState, seed: int) -> None:
    """C5, C6, C7: the rules that no policy may break."""
    following = decide(outcome, state, Random(seed))
    match following:
        case RetryIn(delay_s, spends):
            assert delay_s >= 0
            assert not state.at_most_once or isinstance(outcome, Snoozed)
            assert state.deadline_left_s is None or delay_s < state.deadline_left_s or isinstance(outcome, Released)
            if spends == "attempt":
                assert state.attempt < state.retry.max_attempts
            if isinstance(outcome, Failed):
                assert not outcome.permanent
                assert delay_s >= (outcome.retry_after_s or 0)
            assert spends == {Lost: "loss", Failed: "attempt", TimedOut: "attempt"}.get(type(outcome), "nothing")
        case Bury(reason, permanent, replay_in_s):
            assert reason
            assert not isinstance(outcome, Succeeded | Cancelled)
            assert replay_in_s is None or not permanent
        case Finish(ending):
            assert ending == ("completed" if isinstance(outcome, Succeeded) else "cancelled")
            assert isinstance(outcome, Succeeded | Cancelled)


@given(standings, st.integers())
def test_a_run_that_always_fails_ends(state: RetryState, seed: int) -> None:
    """C5, C7: after at most `max_attempts` tries it is buried."""
    rng = Random(seed)
    for attempt in range(1, state.retry.max_attempts + 1):
        now = RetryState(attempt, state.lost_count, state.retry, state.max_lost, state.at_most_once)
        if isinstance(decide(FLAKY, now, rng), Bury):
            return
    pytest.fail("it would be tried for ever")


def test_the_last_attempt_is_buried_and_the_one_before_is_retried() -> None:
    """C5, C7."""
    assert decide(FLAKY, RetryState(4, 0), Random(1)) == RetryIn(Retry().delay_s(4, Random(1)), "attempt")
    assert decide(FLAKY, RetryState(5, 0), Random(1)) == Bury("attempt 5 of 5 failed: ValueError: flaky", permanent=False)
    assert isinstance(decide(TimedOut("30 s"), RetryState(4, 0), Random(1)), RetryIn)
    assert decide(TimedOut("30 s"), RetryState(5, 0), Random(1)) == Bury("attempt 5 of 5 failed: 30 s", permanent=False)


def test_a_permanent_error_is_not_retried() -> None:
    """C5."""
    following = decide(Failed(FLAKY.error, permanent=True), RetryState(1, 0), RNG)
    assert following == Bury("permanent error: ValueError: flaky", permanent=True)


def test_retry_after_is_a_lower_bound() -> None:
    """C5: it counts if it is longer than the policy's own wait, also beyond its cap; it never shortens the wait."""
    retry = Retry.linear(base="10s", max="20s", jitter=0.0)

    def waits(retry_after_s: float | None) -> float:
        following = decide(Failed(FLAKY.error, retry_after_s=retry_after_s), RetryState(1, 0, retry), RNG)
        assert isinstance(following, RetryIn)
        return following.delay_s

    assert [waits(None), waits(0.0), waits(1.0), waits(99.0)] == [10, 10, 10, 99]


class _Base(Exception):
    pass


class _Left(_Base):
    pass


class _Leaf(_Left, OSError):
    pass


def test_the_nearest_class_with_a_rule_decides() -> None:
    """C5: the exception's own order, whatever order the rules were given in."""
    retry = Retry().on(Exception, "never").on(_Base, Retry.immediate(max_attempts=2)).on(_Left, Retry.after("7s", jitter=0))

    def following(error: BaseException) -> Any:
        return decide(Failed(ErrorInfo.of(error)), RetryState(1, 0, retry), RNG)

    assert following(_Leaf()) == RetryIn(7.0, "attempt")
    assert following(_Base()) == RetryIn(0.0, "attempt")
    assert isinstance(following(KeyError()), Bury)
    assert following(KeyError()).permanent
    assert decide(Failed(ErrorInfo.of(_Base())), RetryState(2, 0, retry), RNG) == Bury(
        f"attempt 2 of 2 failed: {__name__}._Base: ", permanent=False
    )


def test_a_rule_by_name_and_a_rule_by_class_are_the_same() -> None:
    """C5: rules go over the wire."""
    assert Retry().on("ValueError", "never") == Retry().on(ValueError, "never")
    assert Retry().on(f"{__name__}._Leaf", "never") == Retry().on(_Leaf, "never")


def test_a_rule_does_not_change_the_policy_it_was_made_from() -> None:
    """C5."""
    plain = Retry()
    plain.on(ValueError, "never")
    assert plain.rules == {}


def test_no_attempt_begins_after_the_deadline() -> None:
    """C3: the wait must end before the deadline."""
    retry = Retry.after("10s", "10s", jitter=0)
    assert decide(FLAKY, RetryState(1, 0, retry, deadline_left_s=10.1), RNG) == RetryIn(10.0, "attempt")
    for left_s in (10.0, 0.0, -5.0):
        buried = decide(FLAKY, RetryState(1, 0, retry, deadline_left_s=left_s), RNG)
        assert isinstance(buried, Bury)
        assert "deadline" in buried.reason
    assert isinstance(decide(Snoozed(60), RetryState(1, 0, deadline_left_s=60), RNG), Bury)
    assert isinstance(decide(Lost("x"), RetryState(1, 0, deadline_left_s=0), RNG), Bury)


def test_losses_are_counted_separately() -> None:
    """C4, rule "losses have their own budget": at the last attempt a loss still costs no attempt; the third worker is the
    last."""
    assert decide(Lost("gone"), RetryState(5, 1), RNG) == RetryIn(0.0, "loss")
    assert decide(Lost("gone"), RetryState(1, 2), RNG) == Bury("it took down 3 workers; the limit is 3: gone", permanent=False)
    assert isinstance(decide(Lost("gone"), RetryState(1, 0, max_lost=1), RNG), Bury)


def test_a_loss_together_with_others_is_not_charged() -> None:
    """C18, rule "suspects apart": however often."""
    assert decide(Lost("gone", held=2), RetryState(1, 900), RNG) == RetryIn(0.0, "nothing")
    assert isinstance(decide(Lost("gone", held=2), RetryState(1, 0, deadline_left_s=0.0), RNG), Bury)
    assert isinstance(decide(Lost("gone", held=2), RetryState(1, 0, at_most_once=True), RNG), Bury)


def test_a_loss_together_with_the_parent_buries_later() -> None:
    """C18, rule "suspects apart": the parent may be the cause, but a run that takes down both ends eventually."""
    assert decide(Lost("gone", with_parent=True), RetryState(1, 7), RNG) == RetryIn(0.0, "loss")
    buried = decide(Lost("gone", with_parent=True), RetryState(1, 8), RNG)
    assert buried == Bury("it took down 9 workers; the limit is 9: gone", permanent=False)
    assert isinstance(decide(Lost("gone"), RetryState(1, 7), RNG), Bury)


def test_a_hand_back_spends_nothing() -> None:
    """C12, rule "losses have their own budget": not even at the end of every budget."""
    assert decide(Released("drain"), RetryState(5, 2, deadline_left_s=0.0), RNG) == RetryIn(0.0, "nothing")


@pytest.mark.parametrize(
    "outcome", [FLAKY, TimedOut("t"), Lost("l"), Released("r"), Missed("m")], ids=lambda outcome: type(outcome).__name__
)
def test_at_most_once_is_never_tried_again(outcome: Outcome) -> None:
    """C6, rule "bounded prefetch": and is not replayed automatically from the dead letters."""
    following = decide(outcome, RetryState(1, 0, Retry(replays=3), at_most_once=True), RNG)
    assert isinstance(following, Bury)
    assert following.permanent
    assert following.replay_in_s is None


def test_transient_failures_are_replayed_a_bounded_number_of_times() -> None:
    """C7."""
    retry = Retry(max_attempts=1, replays=2, replay_after_s=60)
    again = [decide(FLAKY, RetryState(1, 0, retry, replay_count=count), RNG) for count in range(3)]
    assert [one.replay_in_s for one in again if isinstance(one, Bury)] == [60, 60, None]


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Retry(max_attempts=0), "max_attempts"),
        (lambda: Retry(max_attempts=1001), "max_attempts"),
        (lambda: Retry(jitter=0.26), "jitter"),
        (lambda: Retry(jitter=-0.1), "jitter"),
        (lambda: Retry(jitter=float("nan")), "jitter"),
        (lambda: Retry(factor=0.5), "factor"),
        (lambda: Retry(factor=float("nan")), "factor"),
        (lambda: Retry(factor=float("inf")), "factor"),
        (lambda: Retry(factor=1e9), "factor"),
        (lambda: Retry(base_s=-1.0), "base"),
        (lambda: Retry(base_s=float("nan")), "base"),
        (lambda: Retry(max_s=float("inf")), "max"),
        (lambda: Retry(backoff="list", delays_s=(1.0, -1.0)), "delays"),
        (lambda: Retry(replays=-1), "replays"),
        (lambda: Retry(replay_after_s=-1.0), "replay_after"),
        (lambda: Retry.after(), "delays"),
        (lambda: Retry.after("1s", "soon"), "delays"),
        (lambda: Retry.linear(base="x"), "base"),
        (lambda: Retry.exponential(max="x"), "max"),
        (lambda: msgspec.json.decode(b'{"max_attempts": 0}', type=Retry), "max_attempts"),
    ],
)
def test_an_invalid_policy_is_rejected(make: Any, field: str) -> None:
    """F2: also in a document of the API."""
    with pytest.raises((Invalid, msgspec.ValidationError), match=field):
        make()
