# shellcheck shell=bash
# What scripts/testbed, scripts/vllm and scripts/test share: where the cache
# lies, how they speak, and how a process that they started is known again.
# Sourced, never run.

# Everything that takes long to make lies here, outside the clone, so that a
# fresh clone on the same machine finds it ready.
cache="${ROLLTAP_TESTBED:-${XDG_CACHE_HOME:-${HOME:?set HOME or ROLLTAP_TESTBED}/.cache}/rolltap-testbed}"

# An ordinary user's PATH on Debian lacks the folders of dockerd and debootstrap.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# Diagnostics go to stderr: the standard output of scripts/vllm is its URL.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
  say "$*"
  exit 1
}

# The last lines of a log, indented, so that a failure explains itself.
# usage: show_tail FILE [LINES]
show_tail() {
  [[ -s $1 ]] || return 0
  say "last lines of $1:"
  tail -n "${2:-25}" -- "$1" | sed 's/^/    /' >&2
}

# Writes standard input to FILE in one step: a reader sees all of it or none.
write_whole() {
  local new
  new=$(mktemp "$1.XXXXXX")
  cat >"$new"
  chmod 0644 "$new"
  mv -f -- "$new" "$1"
}

# A stamp says which inputs a finished step was made from. It is dropped first and
# put last: what an interrupted run left behind has none, and is made anew.
stamp_of() { cat -- "$@" | sha256sum | cut -c1-16; }
is_stamped() { [[ -f $cache/stamps/$1 && $(<"$cache/stamps/$1") == "$2" ]]; }
drop_stamp() { rm -f -- "$cache/stamps/$1"; }
put_stamp() { write_whole "$cache/stamps/$1" <<<"$2"; }

# When a process started, in clock ticks since boot; empty if there is none.
# With the pid it names one process for good: the kernel reuses pids.
process_start() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  # The command name in parentheses may itself hold spaces and parentheses.
  read -ra stat <<<"${stat##*) }"
  printf '%s' "${stat[19]:-}"
}

# Waits until a command succeeds; fails after SECONDS.
# usage: wait_until SECONDS COMMAND…
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}
