"""POSTs the same body repeatedly for a while, from a separate process: wrk if it is installed, else this module. It reports how
many requests were answered with 201, and how long they took."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

_WRK = """
local body = io.open(os.getenv("BENCH_BODY"), "rb"):read("*a")
wrk.method, wrk.body, wrk.headers["Content-Type"] = "POST", body, "application/json"
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init(args) accepted = 0 end
function response(status) if status == 201 then accepted = accepted + 1 end end
function done(summary, latency, requests)
  local accepted = 0
  for _, thread in ipairs(threads) do accepted = accepted + thread:get("accepted") end
  local faults = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  local figures = '{"sent_count": %d, "accepted_count": %d, "fault_count": %d, "span_s": %f, "p50_s": %f, "p99_s": %f}'
  print(string.format(figures, summary.requests, accepted, faults, summary.duration / 1e6,
    latency:percentile(50) / 1e6, latency:percentile(99) / 1e6))
end
"""


class Posted(NamedTuple):
    sent_count: int
    accepted_count: int
    fault_count: int  # connections that were refused, broken or timed out
    span_s: float
    p50_s: float
    p99_s: float
    cpu_s: float  # of the load generator


def generator() -> str:
    return "wrk" if shutil.which("wrk") else "bench.http_load"


async def post(url: str, body: bytes, *, connections: int, span_s: float, folder: Path) -> Posted:
    """`folder` is for the files that the load generator reads."""
    body_file, script = folder / "body.json", folder / "posts.lua"
    body_file.write_bytes(body)
    script.write_text(_WRK)
    if generator() == "wrk":
        command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(span_s))}s", "--timeout", "30s", "-s", str(script), url]
    else:
        command = [sys.executable, "-m", "bench.http_load", url, str(connections), str(span_s)]
    before = os.times()
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, "BENCH_BODY": str(body_file)}, stdout=asyncio.subprocess.PIPE
    )
    figures, _ = await process.communicate()
    after = os.times()
    if process.returncode:
        raise RuntimeError(f"the load generator ended with code {process.returncode}: {figures.decode()[-500:]}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Posted(**json.loads(figures.splitlines()[-1]), cpu_s=cpu_s)


async def _main(url: str, body: bytes, connections: int, span_s: float) -> None:
    host, _, path = url.removeprefix("http://").partition("/")
    head = f"POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    taken_s: list[float] = []
    accepted_count = 0
    started_at = time.perf_counter()

    async def one_connection() -> None:
        nonlocal accepted_count
        name, _, port = host.partition(":")
        reader, writer = await asyncio.open_connection(name, int(port))
        while (sent_at := time.perf_counter()) < started_at + span_s:
            writer.write(head.encode() + body)
            answered = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(answered.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            accepted_count += answered.startswith(b"http/1.1 201")
            taken_s.append(time.perf_counter() - sent_at)
        writer.close()

    await asyncio.gather(*(one_connection() for _ in range(connections)))
    span_s = time.perf_counter() - started_at
    taken_s.sort()
    p50_s, p99_s = (taken_s[int(len(taken_s) * part)] for part in (0.5, 0.99))
    figures = {"sent_count": len(taken_s), "accepted_count": accepted_count, "fault_count": 0, "span_s": span_s}
    print(json.dumps({**figures, "p50_s": p50_s, "p99_s": p99_s}))


if __name__ == "__main__":
    import uvloop

    uvloop.run(_main(sys.argv[1], Path(os.environ["BENCH_BODY"]).read_bytes(), int(sys.argv[2]), float(sys.argv[3])))
