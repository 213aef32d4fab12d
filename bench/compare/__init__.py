"""`python -m bench compare --base COMMIT SCENARIO…`: is the working tree slower than that commit?

Both trees. The base is the commit as `git archive` gives it, in `.cache/compare/SHA/tree`, with a virtual environment of its
own beside it, made from its own constraints. The head is the working tree with the environment that runs this command. The
output says whether it has changes that are not committed. It must not change while it is measured.

The harness. Both trees are measured by the scenarios of the working tree: the base's interpreter runs them with the base's
`sexton`. So a change of the harness changes both sides alike, and a figure that the base's own harness does not tell is there
for both. This works because the harness uses only `sexton.App`, the settings, the command line and what `bench.product` finds
by name. Where it does not import there, or with `--harness own`, each tree runs its own `python -m bench`, and only figures
that both tell are compared.

The order. A pair is one run of each tree, one directly after the other, each on a fresh database; pairs alternate their order
(base head, head base, …), so that a steady drift of the machine cancels out. No other benchmark of this machine runs within a
pair. A run of `drain`, `herd` or `submit` is half its usual size, so that nine pairs of the four scenarios take 25 minutes.

The judgement is in `bench.compare.judgement`. What was measured is kept in `.cache/compare/*.jsonl`, line by line; `--resume`
goes on from there.
"""
