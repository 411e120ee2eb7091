# shellcheck shell=bash
# Installs maturin, and fetches the Python packages that the wheel requires. Both are outside the clone, so that only the
# first run on a machine needs a network. Sourced by scripts/wheel and scripts/release, after testbed.d/common.sh.

maturin_version=1.16.0
packaging="$cache/packaging"
# The packages that pip installs with the wheel. It has no build that depends on the platform.
packaging_wheels="$packaging/wheels"

install_packaging() {
  local stamp log="$cache/packaging.log"
  mkdir -p -- "$cache/stamps"
  stamp=$(echo "$maturin_version" "$(python3 -V)" | stamp_of)
  # The check runs maturin, because a stamp outlives the Python that a venv is made from.
  if is_stamped packaging "$stamp" && "$packaging/bin/maturin" --version >/dev/null 2>&1; then
    return
  fi
  drop_stamp packaging
  say "packaging: installing maturin $maturin_version"
  if ! build_packaging >"$log" 2>&1; then
    show_tail "$log"
    die 'packaging: maturin could not be installed; it needs a network, and a Python with venv'
  fi
  put_stamp packaging "$stamp"
}

# A chain of commands, because `set -e` has no effect inside a condition.
build_packaging() {
  rm -rf -- "$packaging" &&
    python3 -m venv "$packaging" &&
    "$packaging/bin/pip" install "maturin==$maturin_version" &&
    "$packaging/bin/pip" download --dest "$packaging_wheels" 'httpx>=0.27'
}
