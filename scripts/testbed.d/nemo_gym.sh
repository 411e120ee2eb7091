# shellcheck shell=bash
# Installs NeMo Gym for the test of its agent server. It has a separate folder, which the trainers' Python searches
# last, because its wheel contains packages with names like `environments` and `benchmarks`. Sourced by scripts/testbed,
# after trainers.sh.

nemo_gym="$cache/nemo-gym"
nemo_gym_version=0.7.0
# NeMo Gym's metadata requires this Python, but the parts that the tests run work with the trainers' Python.
nemo_gym_python=3.13.14
nemo_gym_need_mib=600

install_nemo_gym() {
  local stamp path log="$cache/nemo-gym.log"
  stamp=$({
    "$trainers/bin/python" -V
    echo "$nemo_gym_version" "$uv_version"
    cat "$parts/nemo-gym.txt"
  } | stamp_of)
  # A reinstalled Python of the trainers lacks the .pth file that names the folder.
  path=$("$trainers/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nemo-gym.pth
  if is_stamped nemo-gym "$stamp" && [[ -f $path ]]; then
    say "nemo-gym: installed ($nemo_gym)"
    return
  fi
  require_space nemo-gym "$nemo_gym_need_mib"
  drop_stamp nemo-gym
  say 'nemo-gym: installing NeMo Gym for the tests of its agent server (fetches about 0.1 GB, uses 0.3 GB)'
  if ! build_nemo_gym "$path" >"$log" 2>&1; then
    show_tail "$log"
    die 'nemo-gym: the installation failed; run this command again to retry'
  fi
  put_stamp nemo-gym "$stamp"
}

# A chain of commands, because `set -e` has no effect inside a condition.
build_nemo_gym() {
  local uv="$cache/uv/bin/uv" path=$1
  local -a into=(pip install --python "$trainers/bin/python" --no-deps --target "$nemo_gym")
  local -x UV_CACHE_DIR="$cache/uv-cache" UV_SYSTEM_CERTS=1
  rm -rf -- "$nemo_gym" &&
    "$uv" "${into[@]}" --python-version "$nemo_gym_python" "nemo-gym==$nemo_gym_version" &&
    "$uv" "${into[@]}" --requirements "$parts/nemo-gym.txt" &&
    write_whole "$path" <<<"$nemo_gym" &&
    "$trainers/bin/python" -c 'import nemo_gym.base_responses_api_agent, nemo_gym.rollout_collection' &&
    rm -rf -- "$UV_CACHE_DIR"
}
