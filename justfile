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
    ROLLTAP_UPDATE_DOCS=1 cargo test --quiet -p rolltap -p rolltap-rollout -p rolltap-proxy --lib --bins -- generated_ docs::

# The main job on embedded parts only.
demo:
    cargo run --release -- demo

# What the proxy costs beside a pass-through that captures nothing.
bench-proxy:
    cargo bench --package rolltap-proxy --bench cost

# What captures cost on disk, in memory and at the next start; with --tokenizer DIR in tokens of a real model.
bench-storage *ARGUMENTS:
    cargo bench --package rolltap-proxy --bench storage -- {{ARGUMENTS}}

# What `rolltap export` takes beside the same conversion in Python (needs the testbed).
bench-export *ARGUMENTS:
    ./scripts/bench-export {{ARGUMENTS}}

# Kills the proxy under load so many times, on one data directory, and verifies after each that nothing acknowledged is lost.
crash-test ROUNDS="500" SEED="":
    CRASH_ROUNDS={{ROUNDS}} {{ if SEED == "" { "" } else { "CRASH_SEED=" + SEED } }} cargo test --release --test crash -- --nocapture nothing_acknowledged

# Overhead of trivial trials in Docker, beyond the agent's own work (needs the testbed).
bench-trials:
    ./scripts/bench-trials

# Time to the first prompt on an image without tmux, beside Harbor's Terminus-2 (BENCH_ROUNDS=5, BENCH_PROFILE=dev)
bench-first-prompt:
    ./scripts/bench-first-prompt

# What a growing conversation costs: straight to vLLM and through rolltap (needs the testbed).
bench-prefix *ARGUMENTS:
    ./scripts/bench-prefix {{ARGUMENTS}}
