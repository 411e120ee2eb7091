# shellcheck shell=bash
# The images that the tests use. Sourced by scripts/testbed.

base_image=rolltap-testbed/debian:bookworm
prebuilt_image=rolltap-testbed/hello:1
# What the bundled tasks say FROM; a connected machine pulls it.
public_image=debian:bookworm-slim

# What our images are made from is all in this file: images and root file system
# carry its hash.
recipe=$(stamp_of "${BASH_SOURCE[0]}")
# A tar of a minimal Debian. It outlives /var/lib/docker, which may be wiped.
rootfs="$cache/debian-bookworm.tar"

has_image() { docker image inspect "$1" >/dev/null 2>&1; }

# The hash that one of our images carries; empty for one that is not ours.
recipe_of() {
  docker image inspect --format '{{with .Config.Labels}}{{index . "rolltap.testbed"}}{{end}}' "$1" 2>/dev/null || true
}

is_current() { [[ $(recipe_of "$1") == "$recipe" ]]; }

# An image of the public name that is not ours is the real one: it stays.
public_is_fine() { has_image "$public_image" && { [[ -z $(recipe_of "$public_image") ]] || is_current "$public_image"; }; }

rootfs_is_current() { [[ -s $rootfs ]] && is_stamped rootfs "$recipe"; }

make_images() {
  if is_current "$base_image" && is_current "$prebuilt_image" && public_is_fine; then
    say "images: $base_image, $prebuilt_image and $public_image are there"
    return
  fi
  if ! is_current "$base_image"; then
    make_rootfs
    say "images: importing $base_image"
    docker import --change "LABEL rolltap.testbed=$recipe" --change 'CMD ["bash"]' "$rootfs" "$base_image" >/dev/null
  fi
  if ! public_is_fine; then
    say "images: there is no other $public_image here; our base takes its name"
    docker tag "$base_image" "$public_image"
  fi
  if ! is_current "$prebuilt_image"; then
    say "images: making $prebuilt_image"
    make_prebuilt
  fi
  # What an earlier recipe made, now without a name.
  docker image prune --force --filter label=rolltap.testbed >/dev/null
}

# Made by running and committing a container, not by a build: that needs no
# builder plugin and no network, and shows that containers run here at all. Its
# label it has from the base.
make_prebuilt() {
  local container
  container=$(docker create --network none "$base_image" mkdir -p /app)
  if ! docker start --attach "$container" >&2; then
    docker rm --force "$container" >/dev/null
    show_tail "$dockerd_log"
    die 'images: the engine runs, but a container does not start'
  fi
  docker commit --change 'WORKDIR /app' --change 'CMD ["bash"]' "$container" "$prebuilt_image" >/dev/null
  docker rm "$container" >/dev/null
}

# The mirror that apt is configured with. None is named where apt has none of
# Debian's: debootstrap then takes its own default.
debian_mirror() {
  # shellcheck disable=SC2016 # apt's placeholders, not the shell's
  apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)' 2>/dev/null |
    sed -n '/^Debian|Debian|main|/{s///p;q}'
}

make_rootfs() {
  local work mirror log="$cache/debootstrap.log"
  if rootfs_is_current; then
    return
  fi
  mirror=$(debian_mirror) || mirror=""
  say "images: making a minimal Debian with debootstrap from ${mirror:-its default mirror}"
  drop_stamp rootfs
  # Left by runs that were interrupted; under the lock nobody else works here.
  as_root rm -rf -- "$cache"/rootfs.* "$rootfs".*
  work=$(mktemp -d "$cache/rootfs.XXXXXX")
  if ! as_root debootstrap --variant=minbase --include=ca-certificates bookworm "$work/root" \
    ${mirror:+"$mirror"} >"$log" 2>&1 9>&-; then
    show_tail "$log"
    die 'images: debootstrap failed'
  fi
  pack_rootfs "$work/root"
  as_root rm -rf -- "$work"
  put_stamp rootfs "$recipe"
}

# Leaves out what an image need not carry: device files (the engine's own
# business), downloaded packages, lists that are stale tomorrow, manuals.
pack_rootfs() {
  local waste=(
    './dev/*' './proc/*' './sys/*' './var/cache/apt/*.bin' './var/cache/apt/archives/*.deb'
    './var/lib/apt/lists/*' './usr/share/doc/*' './usr/share/man/*' './usr/share/locale/*'
  )
  as_root tar -C "$1" --numeric-owner "${waste[@]/#/--exclude=}" -cf - . | write_whole "$rootfs"
}
