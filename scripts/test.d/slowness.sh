# shellcheck shell=bash
# Measures how much slower this machine is than a quiet one. The tests' time limits are multiplied by this factor.
# Sourced by scripts/test.

# The duration of the probe on the quiet two-core machine for which the limits were chosen.
quiet_probe_ms=310
# The suite itself keeps every core busy, so that no test has a core to itself.
least_slowness=2

probe() {
  local i
  for ((i = 0; i < 150000; i++)); do :; done
}

# Prints the milliseconds of one probe per core, all at once: other programs on the machine slow some of them down.
probe_ms() {
  local begin=$EPOCHREALTIME core
  for ((core = 0; core < $(nproc); core++)); do probe & done
  wait
  local end=$EPOCHREALTIME
  echo $(((${end/[.,]/} - ${begin/[.,]/}) / 1000))
}

# Sets and exports ROLLTAP_TEST_SLOWNESS, unless the caller has set it.
measure_slowness() {
  local tenths
  if [[ -z ${ROLLTAP_TEST_SLOWNESS:-} ]]; then
    tenths=$(($(probe_ms) * 10 / quiet_probe_ms))
    ((tenths >= least_slowness * 10)) || tenths=$((least_slowness * 10))
    ROLLTAP_TEST_SLOWNESS=$((tenths / 10)).$((tenths % 10))
  fi
  export ROLLTAP_TEST_SLOWNESS
  say "time limits of tests are $ROLLTAP_TEST_SLOWNESS times those of a quiet machine (ROLLTAP_TEST_SLOWNESS)"
}
