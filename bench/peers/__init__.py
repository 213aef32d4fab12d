"""Compares Sexton with other job queues: the same jobs, the same recorder, the same server, one table. Their packages are
installed in separate folders below `.cache/peers`, never in the environment of the tests and the product."""
