#!/usr/bin/env bash
# Installs the Debian packages that some tests want, where root may; elsewhere says what will be skipped.
# Each is named by the command it brings. A test that misses its command skips and says so.
set -euo pipefail

wanted=(flite) # a second synthetic voice for the tests of hearing

missing=()
for name in "${wanted[@]}"; do
    command -v "$name" >/dev/null || missing+=("$name")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    printf 'installing Debian packages: %s\n' "${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    if apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; then
        exit 0
    fi
fi
printf 'not here: %s. Tests that need them are skipped; where you may: apt-get install %s\n' "${missing[*]}" "${missing[*]}" >&2
