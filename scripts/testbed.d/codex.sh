# shellcheck shell=bash
# Codex, an agent that speaks the Responses dialect, for the real tests. Sourced
# by scripts/testbed.

codex_version=0.169.0
codex="$cache/codex"

install_codex() {
  local stamp log="$cache/codex.log"
  stamp=$(echo "$codex_version" | stamp_of)
  if is_stamped codex "$stamp" && [[ -x $codex/node_modules/.bin/codex ]]; then
    say "codex: there ($codex)"
    return
  fi
  have npm || die 'codex: no npm on PATH, and Codex comes from npm; install Node.js 18 or newer with npm'
  say "codex: installing Codex $codex_version"
  drop_stamp codex
  rm -rf -- "$codex"
  if ! npm install --prefix "$codex" --no-audit --no-fund --save-exact "@openai/codex@$codex_version" >"$log" 2>&1; then
    show_tail "$log"
    die 'codex: the installation failed; running this again begins it anew'
  fi
  put_stamp codex "$stamp"
}
