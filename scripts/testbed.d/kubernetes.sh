# shellcheck shell=bash
# Installs the JSON schemas of Kubernetes, for the tests of manifests. Sourced by scripts/testbed.

kubernetes="$cache/kubernetes"

install_kubernetes() {
  local base
  base=$(find_python) || die 'kubernetes: no Python 3.11 or 3.12 with venv was found; install one and put it on PATH'
  install_venv kubernetes "$kubernetes" "$base" 'the schemas of Kubernetes (0.1 GB)' "$parts/kubernetes.txt"
}

finish_kubernetes() {
  "$kubernetes/bin/kubernetes-validate" --help >/dev/null
}
