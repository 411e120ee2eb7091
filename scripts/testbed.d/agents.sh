# shellcheck shell=bash
# Installs agents as their users do, from npm. Sourced by scripts/testbed.

agents="$cache/agents"
claude_code=@anthropic-ai/claude-code@2.1.197

install_agents() {
  local stamp log="$cache/agents.log"
  stamp=$(echo "$claude_code" | stamp_of)
  if is_stamped agents "$stamp"; then
    say "agents: installed ($agents)"
    return
  fi
  say "agents: installing $claude_code (uses 0.25 GB)"
  drop_stamp agents
  rm -rf -- "$agents"
  # The package's install script only links the program that the package depends on.
  if ! npm install --prefix "$agents" --no-audit --no-fund --ignore-scripts "$claude_code" >"$log" 2>&1; then
    show_tail "$log"
    die 'agents: the installation failed'
  fi
  put_stamp agents "$stamp"
}

# Prints the path of Claude Code's program. A package per platform contains it.
claude_code_program() { echo "$agents"/node_modules/@anthropic-ai/claude-code-*/claude; }
