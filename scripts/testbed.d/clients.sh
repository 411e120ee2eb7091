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
  local base
  base=$(find_clients_python) ||
    die 'clients: no Python 3.12 or 3.13 was found, and Harbor needs one; install it and put it on PATH'
  install_venv clients "$clients" "$base" 'LiteLLM, mini-SWE-agent, Harbor and google-genai (0.8 GB)' "$parts/clients.lock.txt"
}

finish_clients() {
  "$clients/bin/python" -c 'import google.genai, litellm, minisweagent, harbor'
}
