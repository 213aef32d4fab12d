"""Mutation testing: each mutant is one mistake in the code, and the tests named for it must fail.

`catalogue` reads the list in tests/mutants, `clones` applies one mutant to a copy of the tree and runs its tests, `verdicts`
keeps the results, `generated` draws automatic mutants. `__main__` is the command.
"""
