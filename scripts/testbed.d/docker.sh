# shellcheck shell=bash
# The Docker Engine: found, started, stopped. Sourced by scripts/testbed.

dockerd_pid_file="$cache/dockerd.pid"
dockerd_log="$cache/dockerd.log"
# There where the dockerd was started for one run of the tests only, which stops
# it again; gone as soon as somebody asks for one that stays.
transient_mark="$cache/dockerd.transient"
engine_socket=/var/run/docker.sock

docker_answers() { timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# The pid of the dockerd that this script started, if that still runs. dockerd
# writes the file itself; its command line, which names our file, proves that
# the pid was not reused.
our_dockerd() {
  local pid
  pid=$(cat "$dockerd_pid_file" 2>/dev/null) && [[ -n $pid ]] || return 1
  tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF -- "--pidfile=$dockerd_pid_file" || return 1
  printf '%s' "$pid"
}

# usage: start_docker yes|no      (whether one that is started is for one run only)
start_docker() {
  local transient=$1
  [[ $transient == yes ]] || rm -f -- "$transient_mark"
  if docker_answers; then
    say "docker: the engine answers (version $(docker version --format '{{.Server.Version}}'))"
    return
  fi
  [[ -z ${DOCKER_HOST:-} ]] ||
    die "docker: DOCKER_HOST is $DOCKER_HOST, and no engine answers there; start it, or unset DOCKER_HOST"
  if dockerd_runs; then
    # Never a second one: it would take the first one's socket away.
    [[ ! -S $engine_socket || -w $engine_socket ]] ||
      die "docker: an engine runs, and this user may not use $engine_socket; join its group ($(stat -c %G "$engine_socket"))"
    say 'docker: a dockerd runs and does not answer yet; waiting for it'
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

# One that is on its way out, or that has ended and that nobody has reaped, will
# never answer.
dockerd_runs() {
  local pid
  for pid in $(pgrep -x dockerd); do
    grep -qE '^State:[[:space:]]+[^ZX[:space:]]' "/proc/$pid/status" 2>/dev/null && return
  done
  return 1
}

docker_answers_or_ended() { docker_answers || ! dockerd_runs; }

# With the storage driver and the iptables rules that dockerd chooses itself:
# both work on a plain machine and in a virtual one.
launch_dockerd() {
  local flags=("--pidfile=$dockerd_pid_file")
  rm -f -- "$dockerd_pid_file"
  # Gives the socket to the user that asked, who is in no such group yet.
  ((EUID == 0)) || flags+=("--group=$(id -g)")
  # In a session of its own, so that a Ctrl-C meant for a test does not end it;
  # without descriptor 9, whose lock it would hold for as long as it lives.
  as_root setsid dockerd "${flags[@]}" >"$dockerd_log" 2>&1 </dev/null 9>&- &
}

stop_docker() {
  local pid
  if ! pid=$(our_dockerd); then
    say 'docker: no dockerd of the testbed runs'
    return
  fi
  say "docker: stopping the dockerd that the testbed started (pid $pid)"
  may_be_root || die "docker: dockerd runs as root, and this user may not stop it; run: sudo kill $pid"
  as_root kill -TERM "$pid"
  # It gives each container ten seconds of its own.
  if ! wait_until 45 dockerd_is_gone; then
    show_tail "$dockerd_log"
    die "docker: dockerd (pid $pid) still runs"
  fi
  rm -f -- "$dockerd_pid_file" "$transient_mark"
}

dockerd_is_gone() { ! our_dockerd >/dev/null; }
