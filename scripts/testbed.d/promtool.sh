# shellcheck shell=bash
# Takes promtool, which tests the alerts of deploy/prometheus, out of Debian's package prometheus. The package itself is
# not installed, because it starts a Prometheus server. Sourced by scripts/testbed.

promtool="$cache/promtool/usr/bin/promtool"

install_promtool() {
  local log="$cache/promtool.log"
  if have promtool; then
    promtool=$(command -v promtool)
    say "promtool: installed ($promtool)"
    return
  fi
  if "$promtool" --version >/dev/null 2>&1; then
    say "promtool: installed ($promtool)"
    return
  fi
  have apt-get || die 'promtool: this is not a Debian system; install Prometheus, so that promtool is on PATH'
  say 'promtool: downloading the Debian package prometheus (uses 0.1 GB)'
  if ! unpack_promtool >"$log" 2>&1; then
    show_tail "$log"
    die 'promtool: the download failed; run this command again to retry'
  fi
}

# A chain of commands, because `set -e` has no effect inside a condition.
unpack_promtool() (
  rm -rf -- "$cache/promtool" &&
    mkdir -p -- "$cache/promtool" &&
    cd -- "$cache/promtool" &&
    { apt-get download prometheus || { apt_get update && apt-get download prometheus; }; } &&
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool &&
    rm -f -- prometheus_*.deb &&
    "$promtool" --version
)
