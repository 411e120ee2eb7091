# shellcheck shell=bash
# How the tests are built: with Clippy as the compiler, and in CI into a folder that outlives the clone. Sourced by
# scripts/test.

# A build folder that CI keeps is begun anew above this size.
target_limit_mib=15000

# CI clones anew each time, and a clone's own target folder would be empty. The
# dependencies are most of the build, and are the same from clone to clone.
keep_build_of_ci() {
  [[ ${CI:-} == true && -z ${CARGO_TARGET_DIR:-} ]] || return 0
  export CARGO_TARGET_DIR="$cache/target" CARGO_INCREMENTAL=0
  mkdir -p -- "$CARGO_TARGET_DIR"
  # Each clone leaves its own crates behind: cargo never removes any.
  if (($(du -sm -- "$CARGO_TARGET_DIR" | cut -f1) > target_limit_mib)); then
    say "$CARGO_TARGET_DIR is larger than $target_limit_mib MiB; beginning it anew"
    rm -rf -- "$CARGO_TARGET_DIR"
  fi
}

require_tools() {
  command -v cargo >/dev/null || die 'no cargo on PATH; install Rust first (rust-toolchain.toml names the version)'
  command -v cargo-nextest >/dev/null || step cargo install --locked cargo-nextest
}

# Every cargo command of a run has the same compiler: with another one it would build the crates once more.
build() {
  export RUSTC_WORKSPACE_WRAPPER="$here/test.d/lint-and-compile"
  step cargo build --workspace --all-targets
}
