"""How fast it is, measured from outside: real processes, a fresh durable PostgreSQL for every repetition, one module per
scenario of docs/performance.md. Nothing here is imported by the product, and no scenario reaches into a process it measures."""
