#!/usr/bin/env bash
# Sets up, builds Release, measures the optimizer step and draws it. `./bench.sh --help` says how to use it.
usage='usage: ./bench.sh [--ranks N] [--model M] [--device cpu|cuda] [--out DIR] [--quick] [--native-only]
                  [--peers NAME,...] [MORE...]

Installs what is missing, builds Release (every program of build/bin that the documents name), measures one optimizer step
on N ranks, first on the ranks of the suite, then the same cases on PyTorch FSDP with the real bitsandbytes, prints one
table, and writes one run folder with a picture and report.html. The last line on stdout is the path of the run folder.

  --ranks N            processes that share the model (default 2)
  --model M            a preset (gpt2, tiny, llama-3.1-8b), a .json list or a .safetensors file (default gpt2)
  --device cpu|cuda    where to measure (default cpu)
  --out DIR            run folder to write (default runs/<utc>-<commit> in the checkout)
  --quick              the tiny model (unless --model says otherwise) and few steps: shows that all works
  --native-only        without PyTorch FSDP, which takes minutes longer
  --peers NAME,...     also measures other packages with 8-bit optimizers, in folders of their own: torchao (which compiles its
                       step, for minutes), bitsandbytes-cpu-fork; pyproject.toml pins their versions
  MORE                 goes to the benchmark as it is: build/bin/optimizer_step --help

examples:
  ./bench.sh                                       # the first numbers: GPT-2 small, two CPU ranks
  ./bench.sh --quick                               # the same within a minute
  ./bench.sh --model my/model.safetensors --ranks 4 --out runs/mine

environment: STEPSCOPE_CUDA=AUTO|ON|OFF builds with or without the CUDA back end; CXX names the compiler.
exit code: 0 measured, 1 a check failed, 2 could not run.'

program=bench.sh
here=$(pwd -P)
# shellcheck source=cmake/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/cmake/setup.sh"
# shellcheck source=cmake/peers.sh
. "$(dirname "${BASH_SOURCE[0]}")/cmake/peers.sh"

ranks=2
model=
device=cpu
out=
native_only=
peers=()
more=()

# A path of the caller's, as seen from any folder.
absolute() {
  case $1 in
    /*) printf '%s\n' "$1" ;;
    *) printf '%s\n' "$here/$1" ;;
  esac
}

read_arguments() {
  local option value peer
  while (($#)); do
    option=$1
    shift
    case $option in
      --ranks | --model | --device | --out | --peers)
        if (($# == 0)) || [[ $1 == --* ]]; then die "$option needs a value (see ./bench.sh --help)"; fi
        value=$1
        shift
        ;;
      --ranks=* | --model=* | --device=* | --out=* | --peers=*)
        value=${option#*=}
        option=${option%%=*}
        ;;
      -h | --help)
        printf '%s\n' "$usage"
        exit 0
        ;;
      --native-only)
        native_only=1
        continue
        ;;
      *)
        more+=("$option")
        continue
        ;;
    esac
    if [ -z "$value" ]; then die "$option needs a value (see ./bench.sh --help)"; fi
    case $option in
      --ranks)
        if ! [[ $value =~ ^[1-9][0-9]{0,3}$ ]]; then die "--ranks is '$value': it takes a whole number from 1 to 9999"; fi
        ranks=$value
        ;;
      --model)
        model=$value
        case $model in
          *.json | *.safetensors | */*)
            model=$(absolute "$model")
            if ! [ -f "$model" ] || ! [ -r "$model" ]; then die "--model is '$value': there is no such readable file"; fi
            ;;
        esac
        ;;
      --device)
        case $value in cpu | cuda) device=$value ;; *) die "--device is '$value': it takes cpu or cuda" ;; esac
        ;;
      --out) out=$(absolute "$value") ;;
      --peers)
        IFS=, read -r -a peers <<<"$value"
        for peer in "${peers[@]}"; do
          if ! grep -qxF -- "$peer" <<<"$(peer_names)"; then
            die "--peers names '$peer': it takes $(peer_names | paste -sd , -)"
          fi
        done
        ;;
    esac
  done
  if [ -n "$native_only" ] && ((${#peers[@]})); then die "--peers does not go with --native-only: both are on PyTorch FSDP"; fi
}

read_arguments "$@"
setup
build_preset release programs || exit 2

# What the ranks of a launch leave: see cmake/rank.sh.
work=
torchrun_pid=

# Ends what a rank left behind, then the relays below, which see the end of their pipes.
end_ranks() {
  local file
  for file in "$work"/pid-*; do
    if [ -f "$file" ]; then kill -KILL -- "-$(cat "$file")" 2>/dev/null; fi
  done
  wait
}

# shellcheck disable=SC2329  # the trap calls it
finish() {
  if [ -n "$torchrun_pid" ]; then
    kill -TERM "$torchrun_pid" 2>/dev/null
    # torchrun ends its ranks, and waits 30 s for one that does not listen: too long for somebody who pressed Ctrl-C.
    for _ in {1..30}; do
      kill -0 "$torchrun_pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$torchrun_pid" 2>/dev/null
    end_ranks
  fi
  if [ -n "$work" ]; then rm -rf "$work"; fi
  end_step
}
trap finish EXIT

# Prints stdout as it comes, but holds back a line that names a folder until another follows: the last one is the run folder, which
# is to be the last line of this script too, after the picture is drawn.
relay_stdout() {
  local line held=
  while IFS= read -r line || [ -n "$line" ]; do
    if [ -n "$held" ]; then printf '%s\n' "$held"; fi
    held=
    if [ -d "$line" ]; then held=$line; else printf '%s\n' "$line"; fi
  done
  printf '%s' "$held" >"$work/run_folder"
}

# All ranks say the same when all fail for the same reason: once is enough.
relay_stderr() {
  local line last=
  while IFS= read -r line || [ -n "$line" ]; do
    if [ -z "$line" ] || [ "$line" != "$last" ]; then printf '%s\n' "$line" >&2; fi
    last=$line
  done
}

# launch COMMAND...: runs it on all ranks. Sets launch_code, the worst code that a rank says of itself (a rank that torchrun ended
# because of another leaves none), and launch_folder, the run folder that the ranks named on their last line.
launch() {
  local file code rank torchrun_code=0
  launch_code=0
  work=$(mktemp -d "$TMPDIR/bench.XXXXXX") || die "cannot make a temporary folder in $TMPDIR"
  mkfifo "$work/stdout" "$work/stderr"
  relay_stdout <"$work/stdout" &
  relay_stderr <"$work/stderr" &
  printf '%s\0' "$@" >"$work/command"
  TMPDIR=$work setsid torchrun --standalone --local-addr 127.0.0.1 --no-python --nproc-per-node "$ranks" \
    "$root/cmake/rank.sh" "$work" >"$work/stdout" 2>"$log" 0>"$work/stderr" &
  torchrun_pid=$!
  wait "$torchrun_pid" || torchrun_code=$?
  torchrun_pid=
  end_ranks
  launch_folder=$(cat "$work/run_folder")
  for file in "$work"/code-*; do
    [ -f "$file" ] || continue
    code=$(cat "$file")
    rank=${file##*-}
    if ((code > 128)); then
      say "$program: rank $rank was ended by signal $(kill -l "$code" 2>/dev/null || echo $((code - 128))): the run is not complete (log: $log)"
      code=2
    elif ((code > 2)); then
      say "$program: rank $rank exited with $code (log: $log)"
      code=2
    fi
    if ((code > launch_code)); then launch_code=$code; fi
  done
  if ((torchrun_code != 0 && launch_code == 0)); then
    say "$program: the ranks ended early: $(grep -m 1 -oE 'Signal [0-9]+ .*|[A-Za-z.]*Error: .*' "$log" || echo "torchrun exited with $torchrun_code") (log: $log)"
    launch_code=2
  fi
  rm -rf "$work"
  work=
}

cd "$root" || die "cannot enter $root"
# Threads of all ranks together: the cores this process may use.
cores=$(nproc)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > ranks ? cores / ranks : 1))}

command=(build/bin/optimizer_step --device "$device")
if [ -n "$model" ]; then command+=(--model "$model"); fi
if [ -n "$out" ]; then command+=(--out "$out"); fi
command+=(${more[@]+"${more[@]}"})
# The rows of PyTorch FSDP go below its own; what follows from all of them comes last.
if [ -z "$native_only" ]; then command+=(--rows-only); fi
log=$logs/torchrun.log
launch "${command[@]}"
run_folder=$launch_folder
exit_code=$launch_code

if [ -z "$run_folder" ]; then
  if ((exit_code == 0)); then
    say "$program: optimizer_step named no run folder on its last line"
    exit_code=2
  fi
  exit "$exit_code"
fi

# The same cases on PyTorch FSDP, into the same folder. Whatever happens here, the rows above are in a complete folder already.
join_rows() {
  if [ -n "$launch_folder" ] && ! python results/join_runs.py "$run_folder" "$launch_folder"; then exit_code=2; fi
}

# measure_peer NAME: rows of another package. That it cannot be installed, imported or stepped is its own affair: the rows say so,
# and the exit code is not about it.
measure_peer() {
  local rows=(python topologies/pytorch/optimizer_step.py --device "$device" --beside "$run_folder" --peer "$1")
  log=$logs/torchrun-$1.log
  if install_peer "$1"; then
    launch env PYTHONPATH="$peer_folder" "${rows[@]}"
  else
    launch "${rows[@]}" --skip "$peer_problem"
  fi
  if ((launch_code > exit_code)); then exit_code=$launch_code; fi
  join_rows
}

if [ -z "$native_only" ]; then
  log=$logs/torchrun-pytorch.log
  launch python topologies/pytorch/optimizer_step.py --device "$device" --beside "$run_folder"
  if ((launch_code > exit_code)); then exit_code=$launch_code; fi
  join_rows
  if ((launch_code == 2)); then say "$program: $run_folder holds the suite's own rows alone"; fi
  for peer in ${peers[@]+"${peers[@]}"}; do measure_peer "$peer"; done
  if ! python results/run_tables.py "$run_folder"; then exit_code=2; fi
fi

for draw in plot_run report; do
  if ! python "plot/$draw.py" "$run_folder" >"$logs/$draw.log" 2>&1; then
    show_failure "$logs/$draw.log"
    say "$program: the run is whole, plot/$draw.py could not show it"
    exit_code=2
  fi
done
printf '%s\n' "$run_folder"
exit "$exit_code"
