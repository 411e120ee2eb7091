# shellcheck shell=bash
# Where the time of a run went. Sourced by scripts/test.

phases=()

# Runs a command, and records how long it took under NAME.
# usage: timed NAME COMMAND…
timed() {
  local name=$1 begin=$SECONDS status=0
  shift
  "$@" || status=$?
  phases+=("$((SECONDS - begin)) $name")
  return "$status"
}

# The counts are the last line, as those who read a log from its end expect.
# usage: report JUNIT_FILE
report() {
  local phase
  say "where the time went ($((SECONDS / 60)) min $((SECONDS % 60)) s):"
  for phase in "${phases[@]}"; do
    printf '%8d s  %s\n' "${phase%% *}" "${phase#* }"
  done
  # Without the file no test ran, and the test runner has said why.
  [[ -f $1 ]] || return 0
  say 'the slowest tests:'
  testcases "$1" | sort -rn | sed -n 1,10p | while read -r seconds name; do
    printf '%8.1f s  %s\n' "$seconds" "$name"
  done
  counts "$1"
}

# Seconds and name of each test, one per line.
testcases() {
  sed -n 's/.*<testcase name="\([^"]*\)" classname="\([^"]*\)".* time="\([^"]*\)".*/\3 \2 \1/p' "$1"
}

counts() {
  sed -n 's/.*<testsuites .*tests="\([0-9]*\)".*failures="\([0-9]*\)" errors="\([0-9]*\)".*/\1 \2 \3/p' "$1" |
    while read -r all failures errors; do
      echo "tests: $((all - failures - errors)) passed, $((failures + errors)) failed"
    done
}
