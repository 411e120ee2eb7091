# shellcheck shell=bash
# Installs agents as their users do, from npm (0.25 GB). Sourced by scripts/testbed.

agents="$cache/agents"

# The package's install script only links the program that the package depends on.
install_agents() { install_from_npm agents @anthropic-ai/claude-code@2.1.197 --ignore-scripts; }

# Prints the path of Claude Code's program. A package per platform contains it.
claude_code_program() { echo "$agents"/node_modules/@anthropic-ai/claude-code-*/claude; }
