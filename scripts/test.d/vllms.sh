# shellcheck shell=bash
# Starts the vLLM servers that the tests share during the build, and stops them at the end. Sourced by scripts/test.

# The arguments of each server, by the variable with the server's URL.
declare -A vllm_arguments=(
  [ROLLTAP_TEST_VLLM]=""
  [ROLLTAP_TEST_VLLM_BARE]="--no-parsers"
  [ROLLTAP_TEST_VLLM_LONG]="--model long"
)
# A folder with one file per variable, which contains the URL of the server.
vllm_urls=""

# Starts the servers one after another: each start keeps two cores busy, and the build runs at the same time.
start_vllms() {
  local variable arguments
  for variable in "${!vllm_arguments[@]}"; do
    [[ -z ${!variable:-} ]] || continue
    read -ra arguments <<<"${vllm_arguments[$variable]}"
    stoppable "$here/vllm" start --port 0 "${arguments[@]}" >"$vllm_urls/$variable" || return
  done
}

export_vllms() {
  local variable
  for variable in "${!vllm_arguments[@]}"; do
    [[ -n ${!variable:-} ]] || printf -v "$variable" %s "$(<"$vllm_urls/$variable")"
    export "${variable?}"
  done
}

stop_vllms() {
  local url
  [[ -n $vllm_urls ]] || return 0
  cat -- "$vllm_urls"/* 2>/dev/null | while read -r url; do
    "$here/vllm" stop --port "${url##*:}" 8>&-
  done
  rm -rf -- "$vllm_urls"
}
