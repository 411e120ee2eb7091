# shellcheck shell=bash
# Defines what scripts/testbed, scripts/vllm and scripts/test share: the folder of the cache, their output, and the
# identification of processes that they started. Sourced, never run.

# Everything that takes long to make is in this folder, outside the clone. A fresh clone on the same machine reuses it.
cache="${ROLLTAP_TESTBED:-${XDG_CACHE_HOME:-${HOME:?set HOME or ROLLTAP_TESTBED}/.cache}/rolltap-testbed}"

# An ordinary user's PATH on Debian lacks the folders of dockerd and debootstrap.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# Writes a diagnostic to stderr, because the standard output of scripts/vllm is its URL.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
  say "$*"
  exit 1
}

# Prints the last lines of a log, indented, so that a failure explains itself.
# usage: show_tail FILE [LINES]
show_tail() {
  [[ -s $1 ]] || return 0
  say "last lines of $1:"
  tail -n "${2:-25}" -- "$1" | sed 's/^/    /' >&2
}

# Writes standard input to FILE atomically: a reader sees all of it or nothing.
write_whole() {
  local new
  new=$(mktemp "$1.XXXXXX")
  cat >"$new"
  chmod 0644 "$new"
  mv -f -- "$new" "$1"
}

# A stamp identifies the inputs of a finished step. It is removed before the step and written after it. An interrupted
# step therefore has no stamp and is repeated.
stamp_of() { cat -- "$@" | sha256sum | cut -c1-16; }
is_stamped() { [[ -f $cache/stamps/$1 && $(<"$cache/stamps/$1") == "$2" ]]; }
drop_stamp() { rm -f -- "$cache/stamps/$1"; }
put_stamp() { write_whole "$cache/stamps/$1" <<<"$2"; }

# Prints the start time of a process in clock ticks since boot, or nothing if the process does not exist. Pid and start
# time identify a process, because the kernel reuses pids.
process_start() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  # The command name in parentheses may itself contain spaces and parentheses.
  read -ra stat <<<"${stat##*) }"
  printf '%s' "${stat[19]:-}"
}

# Waits until a command succeeds. Fails after SECONDS.
# usage: wait_until SECONDS COMMAND…
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}
