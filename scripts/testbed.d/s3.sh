# shellcheck shell=bash
# Installs a server with the S3 protocol, for the tests of object storage. Sourced by scripts/testbed.

s3="$cache/s3"

install_s3() {
  local base
  base=$(find_python) || die 's3: no Python 3.11 or 3.12 with venv was found; install one and put it on PATH'
  install_venv s3 "$s3" "$base" 'an S3 server (0.1 GB)' "$parts/s3.txt"
}

finish_s3() {
  "$s3/bin/moto_server" --help >/dev/null
}
