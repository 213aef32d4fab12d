"""How each peer is set up, filled and worked. A driver runs in its peer's own environment, so here nothing but the standard
library, the recorder and that peer may be imported."""
