# shellcheck shell=bash
# How much slower this machine is than a quiet one, as a factor that the tests' time limits are multiplied by. Sourced by
# scripts/test.

# What the probe takes on the quiet two-core machine that the limits were chosen on.
quiet_probe_ms=310
# The suite itself keeps every core busy, so that no test has a core to itself.
least_slowness=2

probe() {
  local i
  for ((i = 0; i < 150000; i++)); do :; done
}

# One probe per core at once: what else runs on the machine slows some of them down.
probe_ms() {
  local begin=$EPOCHREALTIME core
  for ((core = 0; core < $(nproc); core++)); do probe & done
  wait
  local end=$EPOCHREALTIME
  echo $(((${end/[.,]/} - ${begin/[.,]/}) / 1000))
}

# Sets ROLLTAP_TEST_SLOWNESS unless it is set.
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
