# shellcheck shell=bash
# Installs packages from npm, each part in a folder of its own. Sourced by scripts/testbed.

# Installs a package with its version into $cache/PART, unless it is there: install_from_npm PART PACKAGE [FLAG…]
install_from_npm() {
  local part=$1 package=$2 folder="$cache/$1" log="$cache/$1.log" stamp
  shift 2
  stamp=$(echo "$package" | stamp_of)
  if is_stamped "$part" "$stamp" && [[ -d $folder/node_modules ]]; then
    say "$part: installed ($folder)"
    return
  fi
  have npm || die "$part: $package comes from npm, and npm is not on PATH; install Node.js 18 or newer with npm"
  say "$part: installing $package"
  drop_stamp "$part"
  rm -rf -- "$folder"
  if ! npm install --prefix "$folder" --no-audit --no-fund --save-exact "$@" "$package" >"$log" 2>&1; then
    show_tail "$log"
    die "$part: the installation failed; run this command again to retry"
  fi
  put_stamp "$part" "$stamp"
}
