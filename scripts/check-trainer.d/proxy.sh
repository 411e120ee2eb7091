# shellcheck shell=bash
# Starts a proxy in front of the simulator, for the tests of scripts/check-trainer. Sourced by it.

proxy_folder=""
proxy_pids=()
# The URL of the proxy's admin plane.
admin=""

# Prints the first address that the log of a program names, and fails after a minute.
address_in() {
  local pattern=$1 log=$2 begin=$SECONDS found=""
  while [[ -z $found ]]; do
    ((SECONDS - begin < 60)) || return 1
    sleep 0.1
    found=$(sed -n "s,.*$pattern.*\(http://[0-9.:]*\).*,\1,p" "$log" | sed -n 1p)
  done
  echo "$found"
}

# usage: start_proxy PROGRAM
start_proxy() {
  local upstream
  proxy_folder=$(mktemp -d)
  "$1" sim --listen 127.0.0.1:0 >"$proxy_folder/sim.log" 2>&1 &
  proxy_pids+=($!)
  upstream=$(address_in '' "$proxy_folder/sim.log") || refuse "the simulator did not start: $(<"$proxy_folder/sim.log")"
  "$1" proxy --listen 127.0.0.1:0 --admin 127.0.0.1:0 --upstream "$upstream" --data "$proxy_folder/data" \
    >"$proxy_folder/proxy.log" 2>&1 &
  proxy_pids+=($!)
  admin=$(address_in 'admin plane' "$proxy_folder/proxy.log") ||
    refuse "the proxy did not start: $(<"$proxy_folder/proxy.log")"
}

stop_proxy() {
  ((${#proxy_pids[@]} == 0)) || kill -TERM "${proxy_pids[@]}" 2>/dev/null || true
  wait
  [[ -z $proxy_folder ]] || rm -rf -- "$proxy_folder"
}
