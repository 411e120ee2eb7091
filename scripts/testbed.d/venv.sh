# shellcheck shell=bash
# Installs a venv for each group of packages that the tests run beside vLLM. Sourced by scripts/testbed.

# Makes the venv FOLDER with uv, unless it exists with equal inputs. The inputs are the base Python, the version of uv and
# the FILEs. uv installs the requirements of each FILE that ends in .txt. The function finish_NAME then completes and
# checks the venv.
# usage: install_venv NAME FOLDER BASE_PYTHON CONTENT FILE…
install_venv() {
  local name=$1 folder=$2 base=$3 content=$4 stamp log="$cache/$1.log"
  shift 4
  stamp=$({
    echo "$base" "$("$base" -V)" "$uv_version"
    cat "$@"
  } | stamp_of)
  # The check runs Python, because a stamp outlives the Python that a venv is made from.
  if is_stamped "$name" "$stamp" && "$folder/bin/python" -c '' 2>/dev/null; then
    say "$name: installed ($folder)"
    return
  fi
  drop_stamp "$name"
  say "$name: installing $content with $base"
  if ! build_venv "$name" "$folder" "$base" "$@" >"$log" 2>&1; then
    show_tail "$log"
    die "$name: the installation failed; run this command again to retry"
  fi
  put_stamp "$name" "$stamp"
}

# A chain of commands, because `set -e` has no effect inside a condition.
build_venv() {
  local name=$1 folder=$2 base=$3 uv="$cache/uv/bin/uv" file
  local -a requirements=()
  local -x UV_CACHE_DIR="$cache/uv-cache" UV_SYSTEM_CERTS=1
  shift 3
  for file in "$@"; do
    [[ $file != *.txt ]] || requirements+=(--requirements "$file")
  done
  rm -rf -- "$folder" &&
    "$uv" venv --quiet --python "$base" "$folder" &&
    "$uv" pip install --python "$folder/bin/python" --no-deps --compile-bytecode "${requirements[@]}" &&
    "finish_$name" &&
    rm -rf -- "$UV_CACHE_DIR"
}
