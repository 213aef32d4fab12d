#!/usr/bin/env bash
# Gets what the tests want from the machine itself: PgBouncer, a PostgreSQL 15 (the wheel carries only 16 and 18), curl and Node
# for the example workers, and for chaos a library that sets a process's clock.
# Installs it where it may (root on Debian or a kin), else says in one line what is missing; tests then skip, loudly.
set -euo pipefail

missing=()
command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || missing+=(pgbouncer)
[ -x /usr/lib/postgresql/15/bin/postgres ] || missing+=(postgresql-15)
command -v curl >/dev/null || missing+=(curl)
command -v node >/dev/null || missing+=(nodejs)
compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || missing+=(libfaketime)
[ ${#missing[@]} -eq 0 ] && exit 0

advice="Missing ${missing[*]}: the tests and faults that need them will be left out. To have them: apt-get install ${missing[*]}"
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "$advice" >&2
    exit 0
fi

# Debian starts a service as it installs it; we want the binaries only. A policy that is already there is left alone.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

log=$(mktemp)
echo "Installing ${missing[*]}"
for package in "${missing[@]}"; do # one by one: newer releases have no postgresql-15, and that must not cost us the rest
    if [ ! -s "$log" ]; then
        DEBIAN_FRONTEND=noninteractive apt-get update >>"$log" 2>&1 || true
    fi
    if ! DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$package" >>"$log" 2>&1; then
        echo "$advice (apt-get said: $(grep '^E:' "$log" | tail -n 1))" >&2
    fi
done
rm -f "$log"
