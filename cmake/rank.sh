#!/usr/bin/env bash
# One rank of bench.sh, started by torchrun: rank.sh FOLDER runs the command in FOLDER/command (words that end in NUL).
#
# torchrun turns every exit code of the ranks into 1 and explains it on a page of its own. So each rank leaves its code in
# FOLDER/code-RANK, and torchrun's stderr goes to a log; the ranks' own stderr reaches the user through descriptor 0, which
# torchrun hands on as it is. The command comes from a file because torchrun replaces dollar signs in arguments.
folder=$1
# The process group, by which bench.sh ends what torchrun left.
echo "$$" >"$folder/pid-$RANK"
mapfile -d '' -t command <"$folder/command"
"${command[@]}" 2>&0 </dev/null
code=$?
echo "$code" >"$folder/code-$RANK"
exit "$code"
