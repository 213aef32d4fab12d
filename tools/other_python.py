"""`python -m tools.other_python 3.13 [ARGUMENTS OF PYTEST]`: runs tests on another Python of this machine, in an environment in
.cache."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from bench import venv

ROOT = Path(__file__).parents[1]


def main() -> None:
    version, *arguments = sys.argv[1:]
    python = interpreter(version)
    if python is None:
        sys.exit(f"other python: this machine has no Python {version}, neither as python{version} nor in ~/.pyenv; install it")
    folder = ROOT / ".cache" / f"python-{version}"
    try:
        venv.make(folder, ROOT, "--editable", ".[embedded]", "--group", "dev", python=python)
    except RuntimeError as error:
        sys.exit(f"other python: cannot make an environment with {python}: {error}")
    sys.exit(subprocess.run([str(venv.python_of(folder)), "-m", "pytest", *arguments], cwd=ROOT, check=False).returncode)


def interpreter(version: str) -> str | None:
    """A shim of pyenv is on the PATH also for versions that are not chosen here, and fails."""
    on_path = shutil.which(f"python{version}")
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for python in filter(None, (on_path, *map(str, installed))):
        asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version:
            return python
    return None


if __name__ == "__main__":
    main()
