"""`sexton doctor`: facts, checks, advice."""
