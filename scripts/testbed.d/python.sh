# shellcheck shell=bash
# Installs the test Python (vLLM on the CPU, transformers, the openai client). Sourced by scripts/testbed.

uv_version=0.13.8
venv="$cache/python"
# The approximate size of the locked packages, with room for the download.
python_needs_mib=3500

install_python() {
  local base stamp log="$cache/python.log"
  base=$(find_python)
  stamp=$({
    echo "$base" "$("$base" -V)" "$uv_version"
    cat "$parts/vllm.lock.txt" "$parts/stub_cuda.py"
  } | stamp_of)
  # The check runs Python, because a stamp outlives the Python that a venv is made from.
  if is_stamped python "$stamp" && "$venv/bin/python" -c '' 2>/dev/null; then
    sleep_where_vllm_spins
    say "python: vLLM is installed ($venv)"
    return
  fi
  require_space python "$python_needs_mib"
  drop_stamp python
  say "python: installing vLLM for the CPU with $base (fetches about 0.8 GB, uses 2.2 GB)"
  if ! build_python "$base" >"$log" 2>&1; then
    show_tail "$log"
    die 'python: the installation failed; run this command again to retry'
  fi
  sleep_where_vllm_spins
  put_stamp python "$stamp"
}

# vLLM's engine and its worker each wait in a loop around sched_yield, which occupies a core each. On two cores this
# starves vLLM's own API server for up to half a minute, and takes half of the machine from all other programs. Python
# runs the lines of .pth files at its start.
sleep_where_vllm_spins() {
  local site
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # After the .pth line has run, its imports are no longer visible, so a lambda would fail.
  write_whole "$site/sleep_where_vllm_spins.pth" \
    <<<'import functools, os, time; os.sched_yield = functools.partial(time.sleep, 0.0001)'
}

# usage: require_space STEP MIB
require_space() {
  local free
  free=$(($(df --output=avail -k -- "$cache" | tail -n 1) / 1024))
  ((free >= $2)) ||
    die "$1: $cache has $free MiB free, but $2 MiB are needed; make room or set ROLLTAP_TESTBED to a folder elsewhere"
}

# A chain of commands, because `set -e` has no effect inside a condition.
build_python() {
  local base=$1 uv="$cache/uv"
  # The download cache survives an interrupted run and is deleted after a complete one. uv links its files into the
  # venv, so the cache needs no extra space.
  local -x UV_CACHE_DIR="$cache/uv-cache"
  # uv trusts the system's certificates, as apt and Debian's pip do.
  local -x UV_SYSTEM_CERTS=1
  rm -rf -- "$venv" "$uv" &&
    "$base" -m venv "$uv" &&
    "$uv/bin/pip" install --quiet "uv==$uv_version" &&
    "$base" -m venv --without-pip "$venv" &&
    "$uv/bin/uv" pip install --python "$venv/bin/python" --no-deps --compile-bytecode --requirements "$parts/vllm.lock.txt" &&
    "$venv/bin/python" "$parts/stub_cuda.py" &&
    "$venv/bin/python" -c 'import torch, vllm, transformers, openai; assert not torch.cuda.is_available()' &&
    rm -rf -- "$UV_CACHE_DIR"
}
