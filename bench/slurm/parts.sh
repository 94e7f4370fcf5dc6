#!/usr/bin/env bash
# What job.sh does after the benchmarks, a function a part; sourced by it, not started. It uses job.sh's run, root, build, out, stage,
# device, model, substitute and options. Each part adds a line to $stage/parts, "name: verdict, reason" (verdict: ok, broken, failed or not run; of an
# upstream problem: reproduced or not reproduced), and what it printed to $stage/<part>.txt. Returns 0 ok, reproduced or not run, 1 broken
# or not reproduced, 2 failed.
#
# shellcheck disable=SC2154 # those variables
# not run is for what this node does not have or this build does not do, and says which; nothing takes its place.

# verdict NAME VERDICT [REASON]: the line, in the evidence and in the job's output.
verdict() {
  local line="$1: $2${3:+, $3}"
  printf '%s\n' "$line" >>"$stage/parts"
  printf 'job.sh: %s\n' "$line" >&2
}

# marked: the option that marks what a part measures, where this job is instead of a larger one.
marked() { if [ -n "$substitute" ]; then printf -- '--substitute\n%s\n' "$substitute"; fi; }

# first_of NAME DEFAULT: the first value of an option of optimizer_step among "${options[@]}", which may be a list with commas.
first_of() {
  local value=$2 i
  for ((i = 0; i < ${#options[@]}; ++i)); do
    case ${options[i]} in
      "$1") value=${options[i + 1]:-} ;;
      "$1="*) value=${options[i]#*=} ;;
    esac
  done
  printf '%s\n' "${value%%,*}"
}

# last_line FILE: its last line that is not srun's own, for a reason.
last_line() { grep -v -e '^srun: ' -e '^slurmstepd' -e '^$' "$1" | tail -n 1; }

# One case recorded step by step, and its files judged from outside by the plan that plan_state makes of the same options.
traced_step() {
  local topology policy case words name value code=0
  mapfile -t words < <(marked)
  topology=$(first_of --topology fsdp2)
  policy=$(first_of --state-policy global)
  case=(--model "$model" --topology "$topology" --state-policy "$policy" --optimizer AdamW8bit --dtype fp32)
  for name in --wrap --replicas --min-8bit-size; do
    value=$(first_of "$name" '')
    if [ -n "$value" ]; then case+=("$name" "$value"); fi
  done
  value=$(first_of --threads '')
  if [ -n "$value" ]; then words+=(--threads "$value"); fi
  run srun --kill-on-bad-exit=1 "$build/bin/optimizer_step" "${case[@]}" "${words[@]}" --device "$device" --steps 5 --warmup 2 \
    --trace 3 --out "$stage/traced_step" >"$stage/traced_step.txt" 2>&1 || code=$?
  # A step was taken, but nobody could record the GPU: there is no CUPTI, or another tool has it.
  if name=$(grep -m 1 -o 'GPU activities cannot be recorded: .*' "$stage/traced_step.txt"); then
    verdict 'traced step' 'not run' "because $name"
    return 0
  fi
  if ((code > 1)) || ! [ -d "$stage/traced_step/traces" ]; then
    verdict 'traced step' failed "$(last_line "$stage/traced_step.txt")"
    return 2
  fi
  if ! run "$build/bin/plan_state" "${case[@]}" --world-size "${SLURM_NTASKS:-1}" --plan-out "$stage/plan.json" >/dev/null \
    2>>"$stage/traced_step.txt"; then
    verdict 'traced step' failed "$(last_line "$stage/traced_step.txt")"
    return 2
  fi
  code=0
  run "$build/bin/trace_check" "$stage"/traced_step/traces/* --plan "$stage/plan.json" --json "$stage/trace_check.json" \
    >"$stage/trace_check.txt" 2>&1 || code=$?
  case $code in
    0) verdict 'traced step' ok "$(find "$stage/traced_step/traces" -type f | wc -l) ranks keep the plan of $topology/$policy" ;;
    1) verdict 'traced step' broken "$(grep -m 1 broken "$stage/trace_check.txt")" ;;
    *) verdict 'traced step' failed "$(last_line "$stage/trace_check.txt")" ;;
  esac
  return "$code"
}

# The real PyTorch FSDP with the real bitsandbytes on these ranks: do the upstream problems show here? A line a problem.
upstream() {
  # Loading PyTorch takes a cold file system minutes, and one node longer than another.
  local driver=("$root/.venv/bin/python" topologies/pytorch/optimizer_step.py --model bench/slurm/upstream_model.json
    --optimizer AdamW8bit --steps 5 --warmup 0 --trace 0 --timeout 300 --device "$device")
  local code=0 name found
  mapfile -t -O "${#driver[@]}" driver < <(marked)
  if [ "$device" = cuda ] && [ "$substitute" = oversubscribed ]; then
    verdict upstream 'not run' 'because NCCL takes one rank a GPU, and these share theirs'
    return 0
  fi
  # The driver takes what C++ defines from there.
  export STEPSCOPE_BIN=$build/bin
  if ! run srun --kill-on-bad-exit=1 "${driver[@]}" --adapter none --out "$stage/upstream_fsdp2" \
    >"$stage/upstream.txt" 2>&1 ||
    ! run srun --kill-on-bad-exit=1 "${driver[@]}" --topology fsdp1 --wrap whole-model --adapter none,original-parameters \
      --out "$stage/upstream_fsdp1" >>"$stage/upstream.txt" 2>&1; then
    verdict upstream failed "$(last_line "$stage/upstream.txt")"
    return 2
  fi
  run "$root/.venv/bin/python" bench/slurm/upstream_findings.py "$stage/upstream_fsdp2" "$stage/upstream_fsdp1" \
    >"$stage/upstream_findings.txt" 2>>"$stage/upstream.txt" || code=$?
  if ((code > 1)); then
    verdict upstream failed "$(last_line "$stage/upstream.txt")"
    return 2
  fi
  while IFS=: read -r name found; do verdict "$name" "${found# }"; done <"$stage/upstream_findings.txt"
  return "$code"
}

# A small case of one rank under compute-sanitizer's memcheck, where this node has GPUs and the tool.
memcheck() {
  local tool mark code=0
  mapfile -t mark < <(marked)
  if [ "$device" != cuda ]; then
    verdict memcheck 'not run' 'because compute-sanitizer checks what runs on a GPU, and this job has none'
    return 0
  fi
  if ! tool=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v compute-sanitizer); then
    verdict memcheck 'not run' 'because this node has no compute-sanitizer: load the module of the CUDA toolkit, or set CUDA_HOME'
    return 0
  fi
  run srun --ntasks=1 --nodes=1 "$tool" --tool memcheck --error-exitcode 9 "$build/bin/optimizer_step" --quick --topology single \
    --optimizer AdamW8bit --device cuda --steps 2 --warmup 1 --trace 0 "${mark[@]}" --out "$stage/memcheck" >"$stage/memcheck.txt" 2>&1 || code=$?
  case $code in
    0) verdict memcheck ok "$(grep -m 1 'ERROR SUMMARY' "$stage/memcheck.txt")" ;;
    9) verdict memcheck broken "$(grep -m 1 'ERROR SUMMARY' "$stage/memcheck.txt")" && code=1 ;;
    *) verdict memcheck failed "exit code $code: $(last_line "$stage/memcheck.txt")" && code=2 ;;
  esac
  return "$code"
}
