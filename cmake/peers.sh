# shellcheck shell=bash
# Installs the packages that bench.sh --peers measures beside the suite, each into a folder of its own below .cache/peers and
# never into .venv. Sourced, after setup.sh.

# peer_names: the distributions that pyproject.toml pins for it.
peer_names() {
  sed -n 's/^peers = \[\(.*\)\]$/\1/p' "$root/pyproject.toml" | tr ',' '\n' | sed -n 's/.*"\([^"=]*\)==.*/\1/p'
}

# install_peer NAME: sets peer_folder, which goes first on the path of .venv's Python. Where it cannot be installed, returns 1
# and sets peer_problem to the reason, in one line.
install_peer() {
  local version
  version=$(pinned "$1")
  peer_problem=
  peer_folder=$cache/peers/$1-$version
  if [ -d "$peer_folder" ]; then return; fi
  with_lock "peer-$1" 600 install_peer_locked "$1==$version"
}

install_peer_locked() {
  local log=$logs/peer-${1%%==*}.log uv
  # Another script may have held the lock.
  if [ -d "$peer_folder" ]; then return; fi
  if ! uv=$(usable_uv); then
    (install_uv "$venv/bin/python") 2>"$log" || true
    uv=$(usable_uv) || {
      peer_problem="$1 was not installed: $(tail -n 1 "$log")"
      return 1
    }
  fi
  rm -rf "$peer_folder.new"
  # Without dependencies: what it needs is in .venv, and a second PyTorch would be another subject.
  if ! UV_HTTP_TIMEOUT=60 run_step "installing $1" "$log" 300 \
    "$uv" pip install --no-deps --python "$venv/bin/python" --target "$peer_folder.new" "$1"; then
    peer_problem="$1 was not installed: $(sed '/^Using /d' "$log" | tr -s '[:space:]' ' ' | cut -c 1-300 | sed 's/ $//')"
    return 1
  fi
  mv "$peer_folder.new" "$peer_folder"
}
