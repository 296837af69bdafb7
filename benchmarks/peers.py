"""`python -m benchmarks.peers [NAME ...]`: install peers, each into an environment of its own under `.bench/`."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.subject import PEERS, folder


def main() -> None:
    """The command."""
    names = sys.argv[1:] or list(PEERS)
    if unknown := [name for name in names if name not in PEERS]:
        sys.exit(f"no peer {unknown[0]!r}: there are {', '.join(PEERS)}")
    for name in names:
        _install(name)


def _install(name: str) -> None:
    where, requirement = folder(name), PEERS[name].requirement
    print(f"{requirement} into {os.path.relpath(where)}", file=sys.stderr, flush=True)
    # Without a pip of its own (ours serves it), so that no Debian package is needed.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", where], check=True)
    python = os.path.join(where, "bin", "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    if subprocess.run([*pip, "install", "-q", *requirement.split()], check=False).returncode:
        print(f"{name}: could not be installed (see above); it will be skipped", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
