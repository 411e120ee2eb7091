# shellcheck shell=bash
# The test Python (vLLM on the CPU, transformers, the openai client). Sourced by
# scripts/testbed.

uv_version=0.13.8
venv="$cache/python"
# About what the locked packages take, with room for the download.
python_needs_mib=3500

install_python() {
  local base stamp log="$cache/python.log"
  base=$(find_python)
  stamp=$({
    echo "$base" "$("$base" -V)" "$uv_version"
    cat "$parts/vllm.lock.txt" "$parts/stub_cuda.py"
  } | stamp_of)
  # Asked to run, because a stamp outlives the Python that a venv is made from.
  if is_stamped python "$stamp" && "$venv/bin/python" -c '' 2>/dev/null; then
    sleep_where_vllm_spins
    say "python: vLLM is there ($venv)"
    return
  fi
  require_space python "$python_needs_mib"
  drop_stamp python
  say "python: installing vLLM for the CPU with $base (fetches about 0.8 GB, keeps 2.2 GB)"
  if ! build_python "$base" >"$log" 2>&1; then
    show_tail "$log"
    die 'python: the installation failed; running this again takes it up where it broke off'
  fi
  sleep_where_vllm_spins
  put_stamp python "$stamp"
}

# vLLM's engine and its worker wait for each other in a loop around sched_yield, with a core
# each. On two cores that starves vLLM's own API server, for up to half a minute, and takes
# half of the machine from all else. Python runs the lines of .pth files at its start.
sleep_where_vllm_spins() {
  local site
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # Its lines see no module that they import once they have ended, so no lambda.
  write_whole "$site/sleep_where_vllm_spins.pth" \
    <<<'import functools, os, time; os.sched_yield = functools.partial(time.sleep, 0.0001)'
}

# usage: require_space STEP MIB
require_space() {
  local free
  free=$(($(df --output=avail -k -- "$cache" | tail -n 1) / 1024))
  ((free >= $2)) ||
    die "$1: $cache has $free MiB free, and $2 are needed; make room or set ROLLTAP_TESTBED to a folder elsewhere"
}

# A chain, because `set -e` does not hold inside a condition.
build_python() {
  local base=$1 uv="$cache/uv"
  # The download cache survives an interrupted run and goes with a finished one:
  # uv links its files into the venv, so it costs no space meanwhile.
  local -x UV_CACHE_DIR="$cache/uv-cache"
  # Trust what the system trusts, as apt and Debian's pip do.
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
