# shellcheck shell=bash
# Installs Codex for the real tests, an agent that uses the Responses dialect. Sourced by scripts/testbed.

codex="$cache/codex"

install_codex() { install_from_npm codex @openai/codex@0.169.0; }
