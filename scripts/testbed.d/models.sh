# shellcheck shell=bash
# Makes the models that vLLM serves to the tests: the tiny one, and one for long prompts. Sourced by scripts/testbed,
# after python.sh and tokenizers.sh.

model="$cache/tiny-model"
long_model="$cache/long-model"

# The folder in which the tests of examples/learn store the model that they teach. Its name has the hash of everything
# that determines the model.
learner="$cache/learner-$(cat -- "$here"/../examples/learn/{agent_formats,model,teach,teacher}.py "$here"/../examples/learn/tasks/*/instruction.md | stamp_of)"

make_models() {
  find "$cache" -maxdepth 1 -name 'learner-*' ! -name "${learner##*/}*" -exec rm -rf -- {} +
  make_model tiny-model "$parts/tiny_model.py" "$model"
  make_model long-model "$parts/long_model.py" "$long_model" "$tokenizers/qwen3"
}

# Makes a model if its inputs have changed.
# usage: make_model NAME SCRIPT OUT [TOKENIZER]
make_model() {
  local name=$1 script=$2 out=$3 stamp log="$cache/$1.log"
  shift 3
  stamp=$({
    [[ $# == 0 ]] || cat -- "$1"/*
    cat -- "$script" "$parts/vllm.lock.txt"
  } | stamp_of)
  if is_stamped "$name" "$stamp"; then
    say "$name: installed ($out)"
    return
  fi
  say "$name: making the model"
  drop_stamp "$name"
  rm -rf -- "$out"
  if ! "$venv/bin/python" "$script" "$@" "$out" >"$log" 2>&1; then
    show_tail "$log"
    die "$name: making the model failed"
  fi
  put_stamp "$name" "$stamp"
}
