# shellcheck shell=bash
# Installs the trainers' own packages (TRL, verl, SkyRL, tinker, verifiers, …) on the CPU, and the tools that check the
# `rolltap` package for Python against them. Uses the same Python as the clients, because SkyRL also needs 3.12. Sourced
# by scripts/testbed.

trainers="$cache/trainers"
trainers_need_mib=2600

install_trainers() {
  local base stamp log="$cache/trainers.log"
  base=$(find_clients_python) ||
    die 'trainers: no Python 3.12 or 3.13 was found, and SkyRL needs one; install it and put it on PATH'
  stamp=$({
    echo "$base" "$("$base" -V)" "$uv_version"
    cat "$parts/trainers.lock.txt" "$parts/trainers-alone.txt" "$parts/stub_cuda.py"
  } | stamp_of)
  # The check runs Python, because a stamp outlives the Python that a venv is made from.
  if is_stamped trainers "$stamp" && "$trainers/bin/python" -c '' 2>/dev/null; then
    say "trainers: installed ($trainers)"
    return
  fi
  require_space trainers "$trainers_need_mib"
  drop_stamp trainers
  say "trainers: installing TRL, verl, SkyRL, tinker, verifiers and others with $base (fetches about 0.9 GB, uses 2.0 GB)"
  if ! build_trainers "$base" >"$log" 2>&1; then
    show_tail "$log"
    die 'trainers: the installation failed; run this command again to retry'
  fi
  put_stamp trainers "$stamp"
}

# A chain of commands, because `set -e` has no effect inside a condition.
build_trainers() {
  local base=$1 uv="$cache/uv/bin/uv"
  local -x UV_CACHE_DIR="$cache/uv-cache" UV_SYSTEM_CERTS=1
  rm -rf -- "$trainers" &&
    "$uv" venv --quiet --python "$base" "$trainers" &&
    "$uv" pip install --python "$trainers/bin/python" --no-deps --compile-bytecode \
      --requirements "$parts/trainers.lock.txt" --requirements "$parts/trainers-alone.txt" &&
    "$trainers/bin/python" "$parts/stub_cuda.py" &&
    "$trainers/bin/python" -c 'import torch, trl, verl, tinker, verifiers.v1, gymnasium, openenv.core, skyrl.train.utils.trainer_utils' &&
    rm -rf -- "$UV_CACHE_DIR"
}
