# Everyday commands. `just` alone lists them.

default:
    @just --list

# Runs what CI runs: installs the testbed, then runs every test of the workspace.
test:
    ./scripts/test

# Runs the tests that need nothing but Rust.
fast:
    ./scripts/test --fast

# Runs all tests at full size, which takes hours.
long:
    ./scripts/test --long

# Runs vLLM's own server tests, against vLLM and through rolltap.
vllm-suite *GROUPS:
    ./scripts/test --vllm-suite {{GROUPS}}

# Checks formatting, lints, licences and advisories.
lint:
    cargo fmt --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo deny check

# Counts words to avoid in comments and pages, per file and compared with other projects. A guide, not a gate.
prose *PATHS:
    ./scripts/prose {{PATHS}}

# Writes all files that are generated from the code: option pages, the example file, schemas, Python types, OpenAPI.
docs:
    ROLLTAP_UPDATE_DOCS=1 cargo nextest run --workspace -E 'test(generated_)'

# Builds the wheel with the Python package and the program, and tries it in a fresh environment.
wheel *OUT_AND_ARGUMENTS:
    ./scripts/wheel {{OUT_AND_ARGUMENTS}}

# Makes all files of a release in target/dist, or in the folder OUT.
release *OUT:
    ./scripts/release {{OUT}}

# Runs a job with embedded parts only.
demo:
    cargo run --release -- demo

# Runs the benchmark NAME, or lists all. bench/README.md has their requirements and times.
bench *NAME_AND_ARGUMENTS:
    ./bench/run {{NAME_AND_ARGUMENTS}}

# Fuzzes TARGET, the targets of a crate, or `all`, for SECONDS each. Without arguments it prints its help and the targets.
fuzz TARGET="help" SECONDS="60":
    ./scripts/fuzz {{TARGET}} {{SECONDS}}

# Kills the proxy under load ROUNDS times on one data directory, and verifies that no acknowledged data is lost.
crash-test ROUNDS="500" SEED="":
    CRASH_ROUNDS={{ROUNDS}} {{ if SEED == "" { "" } else { "CRASH_SEED=" + SEED } }} cargo test --release --test crash -- --nocapture nothing_acknowledged
