# shellcheck shell=bash
# Reports how long each phase of a run took. Sourced by scripts/test.

phases=()

# Runs a command and records its duration under NAME.
# usage: timed NAME COMMAND…
timed() {
  local name=$1 begin=$SECONDS status=0
  shift
  "$@" || status=$?
  phases+=("$((SECONDS - begin)) $name")
  return "$status"
}

# Prints the phases, the slowest tests, and the counts as the last line, where readers of a log look first.
# usage: report JUNIT_FILE
report() {
  local phase
  say "time of each phase ($((SECONDS / 60)) min $((SECONDS % 60)) s in total):"
  for phase in "${phases[@]}"; do
    printf '%8d s  %s\n' "${phase%% *}" "${phase#* }"
  done
  # Without the file no test ran, and the test runner has printed the reason.
  [[ -f $1 ]] || return 0
  say 'the slowest tests:'
  testcases "$1" | sort -rn | sed -n 1,10p | while read -r seconds name; do
    printf '%8.1f s  %s\n' "$seconds" "$name"
  done
  counts "$1"
}

# Prints the seconds and the name of each test, one test per line.
testcases() {
  sed -n 's/.*<testcase name="\([^"]*\)" classname="\([^"]*\)".* time="\([^"]*\)".*/\3 \2 \1/p' "$1"
}

counts() {
  sed -n 's/.*<testsuites .*tests="\([0-9]*\)".*failures="\([0-9]*\)" errors="\([0-9]*\)".*/\1 \2 \3/p' "$1" |
    while read -r all failures errors; do
      echo "tests: $((all - failures - errors)) passed, $((failures + errors)) failed"
    done
}
