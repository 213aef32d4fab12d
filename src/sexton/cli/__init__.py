"""The command line and the composition root: the only place where settings become running services.

One module per command group. It holds no rule of scheduling.
"""
