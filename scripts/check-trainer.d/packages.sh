# shellcheck shell=bash
# Installs what a checkout needs in other versions than the testbed has. Sourced by scripts/check-trainer.

# A folder that Python searches before the testbed's packages.
packages=""

# prime-rl of the contract's commit reads traces of this release of verifiers; newer ones lack what it reads.
prime_rl_needs=(verifiers==0.3.1 mcp==1.30.0 httpx-sse==0.4.3 sse-starlette==3.7.0)

# usage: install_packages_for NAME
install_packages_for() {
  [[ $1 == prime-rl ]] || return 0
  local uv="$cache/uv/bin/uv" stamp
  local -x UV_SYSTEM_CERTS=1
  stamp=$(echo "${prime_rl_needs[@]}" | stamp_of)
  packages="$cache/check-trainer/prime-rl-$stamp"
  [[ ! -d $packages ]] || return 0
  say "prime-rl: installing ${prime_rl_needs[*]} into $packages"
  rm -rf -- "$packages.new"
  "$uv" pip install --quiet --no-cache --python "$ROLLTAP_TESTBED_TRAINERS" --no-deps --target "$packages.new" "${prime_rl_needs[@]}" ||
    refuse "prime-rl: the installation failed; run this command again to retry"
  mv -- "$packages.new" "$packages"
}
