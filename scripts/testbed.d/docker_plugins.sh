# shellcheck shell=bash
# Docker's compose and buildx, which the command line takes as plugins. Sourced by
# scripts/testbed.

# Debian has both from this release on; what bookworm calls docker-compose is the
# old program of that name, which nothing here speaks to.
plugin_suite=trixie
declare -A plugin_packages=(
  [docker-compose]=docker-compose=2.26.1-4
  [docker-buildx]=docker-buildx=0.13.1+ds1-3
)
docker_plugins="$cache/docker-plugins"
# Where the command line looks for what one user has.
plugin_folder="${DOCKER_CONFIG:-${HOME:-}/.docker}/cli-plugins"

# One that came with the machine is as good.
has_plugin() { docker "${1#docker-}" version >/dev/null 2>&1; }

install_docker_plugins() {
  local plugin missing=() wanted
  for plugin in "${!plugin_packages[@]}"; do
    has_plugin "$plugin" || missing+=("$plugin")
  done
  if ((${#missing[@]} == 0)); then
    say 'docker: compose and buildx are there'
    return
  fi
  wanted=$(stamp_of "${BASH_SOURCE[0]}")
  is_stamped docker-plugins "$wanted" || fetch_docker_plugins "$wanted"
  mkdir -p -- "$plugin_folder"
  for plugin in "${missing[@]}"; do
    say "docker: linking the plugin $plugin into $plugin_folder"
    ln -sfn -- "$docker_plugins/$plugin" "$plugin_folder/$plugin"
    has_plugin "$plugin" || die "docker: the plugin $plugin is in $plugin_folder and does not work; run: docker ${plugin#docker-} version"
  done
}

# With lists of its own: the system's stay those of its own release, and nothing is
# installed into it. apt checks signatures as ever.
fetch_docker_plugins() {
  local work mirror plugin log="$cache/docker-plugins.log" apt=(apt-get)
  mirror=$(debian_mirror) || mirror=""
  mirror=${mirror:-http://deb.debian.org/debian}
  say "docker: fetching ${plugin_packages[*]} of Debian $plugin_suite from $mirror"
  drop_stamp docker-plugins
  rm -rf -- "$docker_plugins" "$cache"/docker-plugins.??????
  work=$(mktemp -d "$cache/docker-plugins.XXXXXX")
  mkdir -p -- "$docker_plugins" "$work"/{state/lists/partial,cache/archives/partial,deb}
  cat >"$work/sources.list" <<END_OF_LIST
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $plugin_suite main
END_OF_LIST
  : >"$work/status"
  apt+=(-o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null)
  apt+=(-o "Dir::State=$work/state" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache")
  apt+=(-o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null)
  # As whoever runs this: apt's own user may not read the cache.
  apt+=(-o APT::Sandbox::User=)
  if ! { "${apt[@]}" update && (cd -- "$work/deb" && "${apt[@]}" download "${plugin_packages[@]}"); } >"$log" 2>&1 9>&-; then
    show_tail "$log"
    die 'docker: apt could not fetch compose and buildx'
  fi
  for plugin in "$work"/deb/*.deb; do
    dpkg-deb --extract "$plugin" "$work/root"
  done
  for plugin in "${!plugin_packages[@]}"; do
    find "$work/root" -type f -name "$plugin" -perm -u+x -exec cp -- {} "$docker_plugins/" \; -quit
    [[ -x $docker_plugins/$plugin ]] || die "docker: the package ${plugin_packages[$plugin]} holds no $plugin"
  done
  rm -rf -- "$work"
  put_stamp docker-plugins "$1"
}
