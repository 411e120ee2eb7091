# shellcheck shell=bash
# Installs vLLM's own router, for the tests of servers behind a router. Sourced by scripts/testbed.

router="$cache/router"

install_router() {
  local base
  base=$(find_python) || die 'router: no Python 3.11 or 3.12 with venv was found; install one and put it on PATH'
  install_venv router "$router" "$base" 'vllm-router (0.1 GB)' "$parts/router.txt"
}

finish_router() {
  "$router/bin/vllm-router" --help >/dev/null
}
