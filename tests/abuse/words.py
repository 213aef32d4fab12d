"""Texts for parsers: random characters of a grammar, its words in random order, and damaged valid texts."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

NOISE = st.text(max_size=60)
_ODD = st.sampled_from(
    [
        "",
        " ",
        "\t",
        "\n",
        "\x00",
        "\x7f",
        "é",
        "ß",
        "\u017f",
        "\u0130",
        "\u0663",
        "\U0001d7d8",
        "\ud800",
        "½",
        "-",
        "9" * 30,
        "0" * 12 + "1",
    ]
)


def texts(letters: str, words: Sequence[str], good: Sequence[str], between: Sequence[str] = (" ",)) -> st.SearchStrategy[str]:
    joined = st.builds(
        lambda parts, glue: glue.join(parts), st.lists(st.sampled_from(words) | _ODD, max_size=12), st.sampled_from(between)
    )
    return st.one_of(NOISE, st.text(letters, max_size=80), joined, mutated(good, words), st.sampled_from(good))


@st.composite
def mutated(draw: st.DrawFn, good: Sequence[str], words: Sequence[str]) -> str:
    """Cuts out, inserts or doubles a piece, up to three times."""
    text = draw(st.sampled_from(good))
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(text)))
        end = draw(st.integers(begin, min(len(text), begin + 6)))
        new = draw(st.one_of(_ODD, st.sampled_from(words), st.just(text[begin:end] * 2), st.integers(-1, 10**9).map(str)))
        text = text[:begin] + new + text[end:]
    return text


CRON_WORDS = (
    "*", "?", "*/2", "*/0", "*/60", "0", "7", "59", "60", "1-5", "5-1", "SUN-SAT", "FRI-MON", "MON#2", "FRI#5", "FRI#6", "6L",
    "FRIL", "L", "LW", "L-3", "L-31", "15W", "31W", "H", "H/5", "H(0-7)", "H(9-1)/3", "JAN", "DEC-FEB", "1,2,3", ",", "1,,2",
    "2028", "2150", "1970-2150/4", "2029/7", "TZ=UTC", "CRON_TZ=Europe/Paris", "@daily", "@every", "@reboot", "-1", "1/1/1",
)  # fmt: skip
CRONS = (
    "0 9 * * MON-FRI", "*/5 * * * *", "0 0 29 2 *", "0 0 31 2 *", "0 0 30 2 MON", "0 0 L * *", "0 0 15W * FRI#5", "H H * * *",
    "CRON_TZ=America/New_York 30 2 * * *", "0 0 12 ? * 6L 2028-2040/4", "59 59 23 31 12 ? 2149", "@yearly", "0 0 29 2 MON 2100",
    "0 0 0 1W * ? *", "0 0 29 2 ? 2097-2103", "0 0 31 2,4,6,9,11 ?", "* * * * * *", "0 0 L-30 2 *", "0 0 31W 2 *",
)  # fmt: skip
RRULE_WORDS = (
    "FREQ=SECONDLY", "FREQ=MINUTELY", "FREQ=HOURLY", "FREQ=DAILY", "FREQ=WEEKLY", "FREQ=MONTHLY", "FREQ=YEARLY", "FREQ=NEVER",
    "INTERVAL=1", "INTERVAL=7", "INTERVAL=10000000", "INTERVAL=0", "COUNT=1", "COUNT=10000", "COUNT=10001", "UNTIL=20300101",
    "UNTIL=19000101T000000Z", "UNTIL=99999999", "WKST=SU", "WKST=XX", "BYDAY=MO,TU", "BYDAY=53SU", "BYDAY=-1FR", "BYDAY=5MO",
    "BYMONTH=2", "BYMONTH=1,2,3,4,5,6,7,8,9,10,11,12", "BYMONTHDAY=30", "BYMONTHDAY=-31", "BYYEARDAY=366", "BYYEARDAY=-366",
    "BYWEEKNO=53", "BYWEEKNO=-53", "BYHOUR=0", "BYHOUR=" + ",".join(map(str, range(24))), "BYMINUTE=59",
    "BYMINUTE=" + ",".join(map(str, range(60))), "BYSECOND=0,10,20,30,40,50", "BYSECOND=" + ",".join(map(str, range(60))),
    "BYSETPOS=1", "BYSETPOS=-1", "BYSETPOS=366", "BYSETPOS=" + ",".join(map(str, range(1, 367))), "RRULE:", "DTSTART:",
    "DTSTART:20260101T000000Z", "DTSTART;TZID=Europe/Paris:19000101T000000", "EXDATE:20260301", "RDATE:20270101T010203",
)  # fmt: skip
RRULES = (
    "FREQ=DAILY;BYHOUR=9", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;INTERVAL=3",
    "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", "FREQ=SECONDLY;INTERVAL=9999991;BYHOUR=3;BYMINUTE=7;BYSECOND=11",
    "FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO", "FREQ=YEARLY;BYDAY=53SU", "FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO",
    "FREQ=YEARLY;BYYEARDAY=366;BYDAY=SU;BYHOUR=1,2,3;BYSETPOS=-1", "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=10000",
    "FREQ=DAILY;BYHOUR=0,1,2,3,4,5,6,7,8,9,10,11;BYMINUTE=0,1,2,3,4,5,6,7,8,9;BYSECOND=0,1,2,3,4,5;BYSETPOS=1,2,3,4",
    "DTSTART:19000101T000000Z\nRRULE:FREQ=SECONDLY;COUNT=10000", "DTSTART:19010101T000000\nRRULE:FREQ=DAILY;INTERVAL=3",
    "DTSTART;TZID=America/New_York:20260308T023000\nRRULE:FREQ=WEEKLY;BYDAY=SU\nEXDATE:20260315T023000",
    "FREQ=HOURLY;INTERVAL=25;BYHOUR=3", "FREQ=MINUTELY;INTERVAL=1441", "FREQ=SECONDLY;BYSECOND=0;BYMINUTE=0;INTERVAL=7",
)  # fmt: skip
EXCLUDE_WORDS = (
    "2026-12-25",
    "22:00-06:00",
    "00:00-24:00",
    "00:00-23:59",
    "00:00:01-00:00",
    "06:00-06:00",
    "2026-13-45",
    "24:00-25:00",
)
ZONES = (
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Asia/Kathmandu",
)
SPANS = ("90s", "15m", "24h", "7d", "1h30m", "250ms", "1.5s", "0s", "3660d")
SPAN_WORDS = (
    "1",
    "ms",
    "s",
    "m",
    "h",
    "d",
    ".",
    "1.1234567",
    "999999999d",
    "P1D",
    "PT1H",
    "P",
    "1e9",
    "nan",
    "inf",
    "-1s",
    "+1s",
)
LIMIT_WORDS = (
    "{payload.a}",
    "{payload.a.b}",
    "{",
    "}",
    "{}",
    "{payload}",
    "{payload.}",
    "{payload..a}",
    "@",
    "stripe",
    ":",
    "x" * 201,
)
LIMITS = ("stripe", "stripe:{payload.account}", "{payload.a.b.c}-{payload.d}", "a{payload.ä}")
QUEUE_WORDS = (
    "mail",
    "default",
    "mail:3",
    ":",
    ">",
    ",",
    "mail:0",
    "mail:1001",
    ":3",
    "mail:" + "0" * 9 + "9" * 20,
    "a:" + "9" * 5_000,
)
