# shellcheck shell=bash
# Installs Codex for the real tests, an agent that uses the Responses dialect. Sourced by scripts/testbed.

codex_version=0.169.0
codex="$cache/codex"

install_codex() {
  local stamp log="$cache/codex.log"
  stamp=$(echo "$codex_version" | stamp_of)
  if is_stamped codex "$stamp" && [[ -x $codex/node_modules/.bin/codex ]]; then
    say "codex: installed ($codex)"
    return
  fi
  have npm || die 'codex: Codex comes from npm, and npm is not on PATH; install Node.js 18 or newer with npm'
  say "codex: installing Codex $codex_version"
  drop_stamp codex
  rm -rf -- "$codex"
  if ! npm install --prefix "$codex" --no-audit --no-fund --save-exact "@openai/codex@$codex_version" >"$log" 2>&1; then
    show_tail "$log"
    die 'codex: the installation failed; run this command again to retry'
  fi
  put_stamp codex "$stamp"
}
