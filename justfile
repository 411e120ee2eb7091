# Everyday commands. `just` alone lists them.

default:
    @just --list

# What CI runs: the testbed, then every test of the workspace.
test:
    ./scripts/test

# The tests that need nothing but Rust.
fast:
    ./scripts/test --fast

# All tests at full size, for hours.
long:
    ./scripts/test --long

# vLLM's own server tests, against vLLM and through rolltap.
vllm-suite *GROUPS:
    ./scripts/test --vllm-suite {{GROUPS}}

# Formatting, lints, licences and advisories.
lint:
    cargo fmt --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo deny check

# Words to avoid in comments and pages, per file and beside other projects. A guide, not a gate.
prose *PATHS:
    ./scripts/prose {{PATHS}}

# Writes everything that is generated from the code: pages of options, the example file, schemas, Python's types, OpenAPI.
docs:
    ROLLTAP_UPDATE_DOCS=1 cargo test --quiet -p rolltap -p rolltap-rollout -p rolltap-proxy --lib --bins -- generated_

# The main job on embedded parts only.
demo:
    cargo run --release -- demo

# Runs the benchmark NAME, or lists all: bench/README.md has what each needs and how long it takes.
bench *NAME_AND_ARGUMENTS:
    ./bench/run {{NAME_AND_ARGUMENTS}}

# Kills the proxy under load so many times, on one data directory, and verifies after each that nothing acknowledged is lost.
crash-test ROUNDS="500" SEED="":
    CRASH_ROUNDS={{ROUNDS}} {{ if SEED == "" { "" } else { "CRASH_SEED=" + SEED } }} cargo test --release --test crash -- --nocapture nothing_acknowledged
