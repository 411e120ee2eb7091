# shellcheck shell=bash
# Installs the trainers' own packages (TRL, verl, SkyRL, tinker, verifiers, …) on the CPU, and the tools that check the
# `rolltap` package for Python against them. Uses the same Python as the clients, because SkyRL also needs 3.12. Sourced
# by scripts/testbed.

trainers="$cache/trainers"
trainers_need_mib=2600

install_trainers() {
  local base
  base=$(find_clients_python) ||
    die 'trainers: no Python 3.12 or 3.13 was found, and SkyRL needs one; install it and put it on PATH'
  [[ -d $trainers ]] || require_space trainers "$trainers_need_mib"
  install_venv trainers "$trainers" "$base" 'TRL, verl, SkyRL, tinker, verifiers and others (fetches about 0.9 GB, uses 2.0 GB)' \
    "$parts/trainers.lock.txt" "$parts/trainers-alone.txt" "$parts/stub_cuda.py"
}

# A chain of commands, because `set -e` has no effect inside a condition.
finish_trainers() {
  "$trainers/bin/python" "$parts/stub_cuda.py" &&
    "$trainers/bin/python" -c 'import torch, trl, verl, tinker, verifiers.v1, gymnasium, openenv.core, skyrl.train.utils.trainer_utils'
}
