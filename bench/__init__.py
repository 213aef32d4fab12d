"""How fast it is, measured from targets: real processes, a fresh durable PostgreSQL for every repetition, one module per
scenario of DESIGN §6. Nothing here is imported by the product, and no scenario reaches into a process it measures."""
