# shellcheck shell=bash
# The vLLM servers that the tests share: started beside the build, stopped at the end. Sourced by scripts/test.

# By the variable that holds the URL: the arguments that the server is started with.
declare -A vllm_arguments=(
  [ROLLTAP_TEST_VLLM]=""
  [ROLLTAP_TEST_VLLM_BARE]="--no-parsers"
  [ROLLTAP_TEST_VLLM_LONG]="--model long"
)
# A file per variable with the URL of the server.
vllm_urls=""

# One after another: each start keeps two cores busy, and the build runs beside it.
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
