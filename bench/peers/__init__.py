"""Other job queues beside Sexton: the same jobs, the same recorder, the same server, one table. Their packages live in folders
of their own below `.cache/peers`, never in the environment that tests and product use."""
