# shellcheck shell=bash
# Installs the TypeScript compiler (31 MB), which checks the types of the viewer's script. Sourced by scripts/testbed.

typescript="$cache/typescript"

install_typescript() { install_from_npm typescript typescript@7.0.2; }
