# shellcheck shell=bash
# Builds the tests: with Clippy as the compiler, and in CI into a folder that outlives the clone. Sourced by
# scripts/test.

# The size above which CI's persistent build folder is deleted and built from scratch.
target_limit_mib=15000

# CI makes a new clone for each run, and a clone's own target folder would be empty. The dependencies are most of the
# build and do not differ between clones.
keep_build_of_ci() {
  [[ ${CI:-} == true && -z ${CARGO_TARGET_DIR:-} ]] || return 0
  export CARGO_TARGET_DIR="$cache/target" CARGO_INCREMENTAL=0
  mkdir -p -- "$CARGO_TARGET_DIR"
  # The crates of each clone accumulate, because cargo never removes any.
  if (($(du -sm -- "$CARGO_TARGET_DIR" | cut -f1) > target_limit_mib)); then
    say "$CARGO_TARGET_DIR is larger than $target_limit_mib MiB; deleting it"
    rm -rf -- "$CARGO_TARGET_DIR"
  fi
}

require_tools() {
  command -v cargo >/dev/null || die 'no cargo on PATH; install Rust first (rust-toolchain.toml names the version)'
  command -v cargo-nextest >/dev/null || step cargo install --locked cargo-nextest
}

# Every cargo command of a run uses the same compiler. Another one would rebuild the crates.
build() {
  export RUSTC_WORKSPACE_WRAPPER="$here/test.d/lint-and-compile"
  step cargo build --workspace --all-targets
}
