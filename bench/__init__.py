"""Benchmarks from outside: real processes, a fresh durable PostgreSQL for every repetition, one module per scenario of
docs/performance.md. The product imports nothing from here, and no scenario reaches into a process that it measures."""
