# shellcheck shell=bash
# Installs the TypeScript compiler, which checks the types of the viewer's script. Sourced by scripts/testbed.

typescript_version=7.0.2
typescript="$cache/typescript"

install_typescript() {
  local stamp log="$cache/typescript.log"
  stamp=$(echo "$typescript_version" | stamp_of)
  if is_stamped typescript "$stamp" && [[ -x $typescript/node_modules/.bin/tsc ]]; then
    say "typescript: installed ($typescript)"
    return
  fi
  say "typescript: installing TypeScript $typescript_version (uses 31 MB)"
  drop_stamp typescript
  rm -rf -- "$typescript"
  if ! npm install --prefix "$typescript" --no-audit --no-fund --save-exact "typescript@$typescript_version" >"$log" 2>&1; then
    show_tail "$log"
    die 'typescript: the installation failed; run this command again to retry'
  fi
  put_stamp typescript "$stamp"
}
