"""How each peer is set up, filled and run. A driver runs in its peer's own environment, so it may import only the standard
library, the recorder and that peer."""
