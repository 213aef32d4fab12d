"""What the harness needs from the `sexton` package besides `sexton.App`, its settings and its command line.

`python -m bench compare` runs this harness against other commits too, where a module may have another path. So the harness
imports nothing else of the product when it starts: it finds a class by its name, and gets the schema from `sexton migrate`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sexton

if TYPE_CHECKING:
    from sexton.store.embedded.server import EmbeddedPostgres


def embedded_postgres() -> type[EmbeddedPostgres]:
    found: type[EmbeddedPostgres] = class_named("EmbeddedPostgres")
    return found


def class_named(name: str) -> Any:
    """The class of the product with this name, in whichever module it is."""
    root = Path(sexton.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if f"\nclass {name}" in path.read_text():
            module = ".".join(("sexton", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
            if (found := getattr(import_module(module), name, None)) is not None:
                return found
    raise ImportError(f"{root} has no class {name}")


async def migrate(url: str) -> None:
    """Migrates an empty database to the schema of this commit, as a user would."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sexton", "migrate",
        env={**os.environ, "SEXTON_DATABASE_URL": url},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"sexton migrate ended with code {process.returncode}:\n{output.decode()}")
