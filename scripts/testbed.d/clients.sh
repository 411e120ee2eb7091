# shellcheck shell=bash
# Installs the clients and agents that the real tests run (google-genai, LiteLLM, mini-SWE-agent, Harbor's Terminus-2)
# in a separate venv: Harbor may need a newer Python than vLLM. Sourced by scripts/testbed.

clients="$cache/clients"

# Version managers install Pythons in folders that their shims on PATH may not find.
find_clients_python() {
  local candidate
  for candidate in python3 python3.12 python3.13 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[23].*/bin/python3; do
    if have "$candidate" && "$candidate" -c 'import sys; sys.exit(not (3, 12) <= sys.version_info < (3, 14))' 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  return 1
}

install_clients() {
  local base stamp log="$cache/clients.log"
  base=$(find_clients_python) ||
    die 'clients: no Python 3.12 or 3.13 was found, and Harbor needs one; install it and put it on PATH'
  stamp=$({
    echo "$base" "$("$base" -V)" "$uv_version"
    cat "$parts/clients.lock.txt"
  } | stamp_of)
  # The check runs Python, because a stamp outlives the Python that a venv is made from.
  if is_stamped clients "$stamp" && "$clients/bin/python" -c '' 2>/dev/null; then
    say "clients: installed ($clients)"
    return
  fi
  drop_stamp clients
  say "clients: installing LiteLLM, mini-SWE-agent, Harbor and google-genai with $base (uses 0.8 GB)"
  if ! build_clients "$base" >"$log" 2>&1; then
    show_tail "$log"
    die 'clients: the installation failed; run this command again to retry'
  fi
  put_stamp clients "$stamp"
}

# A chain of commands, because `set -e` has no effect inside a condition.
build_clients() {
  local base=$1 uv="$cache/uv/bin/uv"
  local -x UV_CACHE_DIR="$cache/uv-cache" UV_SYSTEM_CERTS=1
  rm -rf -- "$clients" &&
    "$uv" venv --quiet --python "$base" "$clients" &&
    "$uv" pip install --python "$clients/bin/python" --no-deps --compile-bytecode --requirements "$parts/clients.lock.txt" &&
    "$clients/bin/python" -c 'import google.genai, litellm, minisweagent, harbor' &&
    rm -rf -- "$UV_CACHE_DIR"
}
