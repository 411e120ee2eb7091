# shellcheck shell=bash
# Installs vLLM's own router, for the tests of servers behind a router. Sourced by scripts/testbed.

router="$cache/router"

install_router() {
  local base stamp log="$cache/router.log"
  base=$(find_python) || die 'router: no Python 3.11 or 3.12 with venv was found; install one and put it on PATH'
  stamp=$({
    echo "$base" "$("$base" -V)" "$uv_version"
    cat "$parts/router.txt"
  } | stamp_of)
  # The check runs Python, because a stamp outlives the Python that a venv is made from.
  if is_stamped router "$stamp" && "$router/bin/python" -c '' 2>/dev/null; then
    say "router: installed ($router)"
    return
  fi
  drop_stamp router
  say "router: installing vllm-router with $base (uses 0.1 GB)"
  if ! build_router "$base" >"$log" 2>&1; then
    show_tail "$log"
    die 'router: the installation failed; run this command again to retry'
  fi
  put_stamp router "$stamp"
}

# A chain of commands, because `set -e` has no effect inside a condition.
build_router() {
  local base=$1 uv="$cache/uv/bin/uv"
  local -x UV_CACHE_DIR="$cache/uv-cache" UV_SYSTEM_CERTS=1
  rm -rf -- "$router" &&
    "$uv" venv --quiet --python "$base" "$router" &&
    "$uv" pip install --python "$router/bin/python" --no-deps --requirements "$parts/router.txt" &&
    "$router/bin/vllm-router" --help >/dev/null &&
    rm -rf -- "$UV_CACHE_DIR"
}
