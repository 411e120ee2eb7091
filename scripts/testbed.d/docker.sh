# shellcheck shell=bash
# Finds, starts and stops the Docker Engine. Sourced by scripts/testbed.

dockerd_pid_file="$cache/dockerd.pid"
dockerd_log="$cache/dockerd.log"
# This file exists while the testbed's dockerd is for one run of the tests only, which then stops it. A run of `up`
# without --transient removes the file.
transient_mark="$cache/dockerd.transient"
engine_socket=/var/run/docker.sock

docker_answers() { timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# Prints the pid of the dockerd that this script started, if it still runs. dockerd writes the pid file itself. Its
# command line, which names our file, proves that the pid was not reused.
our_dockerd() {
  local pid
  pid=$(cat "$dockerd_pid_file" 2>/dev/null) && [[ -n $pid ]] || return 1
  tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF -- "--pidfile=$dockerd_pid_file" || return 1
  printf '%s' "$pid"
}

# usage: start_docker yes|no      (yes: a dockerd that this starts is for one run only)
start_docker() {
  local transient=$1
  [[ $transient == yes ]] || rm -f -- "$transient_mark"
  if docker_answers; then
    say "docker: the engine answers (version $(docker version --format '{{.Server.Version}}'))"
    return
  fi
  [[ -z ${DOCKER_HOST:-} ]] ||
    die "docker: DOCKER_HOST is $DOCKER_HOST, but no engine answers there; start it, or unset DOCKER_HOST"
  if dockerd_runs; then
    # A second dockerd would take over the socket of the first one.
    [[ ! -S $engine_socket || -w $engine_socket ]] ||
      die "docker: an engine runs, but this user may not use $engine_socket; join its group ($(stat -c %G "$engine_socket"))"
    say 'docker: a dockerd runs but does not answer yet; waiting for it'
    wait_until 60 docker_answers_or_ended || true
  fi
  if ! docker_answers && ! dockerd_runs; then
    say "docker: starting dockerd (log: $dockerd_log)"
    launch_dockerd
    [[ $transient == no ]] || : >"$transient_mark"
  fi
  if ! wait_until 60 docker_answers; then
    show_tail "$dockerd_log"
    die 'docker: dockerd does not answer'
  fi
}

# Succeeds if a dockerd runs. A dead or unreaped process does not count, because it will never answer.
dockerd_runs() {
  local pid
  for pid in $(pgrep -x dockerd); do
    grep -qE '^State:[[:space:]]+[^ZX[:space:]]' "/proc/$pid/status" 2>/dev/null && return
  done
  return 1
}

docker_answers_or_ended() { docker_answers || ! dockerd_runs; }

# Uses the storage driver and the iptables rules that dockerd chooses: both work on a plain machine and in a virtual
# one.
launch_dockerd() {
  local flags=("--pidfile=$dockerd_pid_file")
  rm -f -- "$dockerd_pid_file"
  # The calling user is in no group of Docker yet, so the socket gets the user's own group.
  ((EUID == 0)) || flags+=("--group=$(id -g)")
  # In its own session, dockerd is not ended by a Ctrl-C for a test. It must not inherit descriptor 9, because it would
  # hold that lock as long as it runs.
  as_root setsid dockerd "${flags[@]}" >"$dockerd_log" 2>&1 </dev/null 9>&- &
}

stop_docker() {
  local pid
  if ! pid=$(our_dockerd); then
    say 'docker: no dockerd of the testbed runs'
    return
  fi
  say "docker: stopping the dockerd that the testbed started (pid $pid)"
  may_be_root || die "docker: dockerd runs as root, but this user may not stop it; run: sudo kill $pid"
  as_root kill -TERM "$pid"
  # dockerd allows each container ten seconds to stop.
  if ! wait_until 45 dockerd_is_gone; then
    show_tail "$dockerd_log"
    die "docker: dockerd (pid $pid) still runs"
  fi
  rm -f -- "$dockerd_pid_file" "$transient_mark"
}

dockerd_is_gone() { ! our_dockerd >/dev/null; }
