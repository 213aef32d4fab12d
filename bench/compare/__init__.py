"""`python -m bench compare --base COMMIT SCENARIO…`: is the working tree slower than that commit?

Trees. The base is the commit as `git archive` gives it, in `.cache/compare/SHA/tree`, with a virtual environment of its own
beside it, made from its own constraints. The head is the working tree with the environment that runs this command. The output
says whether it has uncommitted changes. It must not change during the measurement.

Harness. Both trees are measured by the scenarios of the working tree: the base's interpreter runs them with the base's
`sexton`. So a change of the harness changes both sides alike, and a figure that the base's own harness does not have exists for
both. This works because the harness uses only `sexton.App`, the settings, the command line and what `bench.product` finds by
name. If it does not import there, or with `--harness own`, each tree runs its own `python -m bench`, and only figures that both
report are compared.

Order. A pair is one run of each tree, one directly after the other, each on a fresh database. Pairs alternate their order (base
head, head base, …), so that a steady drift of the machine cancels out. No other benchmark on this machine runs during a pair. A
run of `drain`, `herd` or `submit` is half its usual size, so that nine pairs of the four scenarios take 25 minutes.

Judgement: see `bench.compare.judgement`. The results are kept in `.cache/compare/*.jsonl`, one line per run; `--resume`
continues from there.
"""
