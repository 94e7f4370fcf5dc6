"""plan_state, as a user runs it: figures, errors, and bounded time and memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from pathlib import Path

import pytest

BIN = Path(os.environ["STEPSCOPE_BIN"])
LLAMA = "llama-3.1-405b"
LLAMA_NUMEL = 405_853_388_800
A_MILLION = 1 << 20
MEMORY_LIMIT = 200_000_000
CPU_LIMIT_S = (
    20  # far above the fraction of a second that it takes, for sanitizers and busy machines
)


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))


def run(*arguments: str | int | Path, preexec=limit) -> subprocess.CompletedProcess:
    words = [BIN / "plan_state", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, preexec_fn=preexec)


def plan(*arguments: str | int | Path) -> dict:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def error(*arguments: str | int | Path) -> str:
    done = run(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("plan_state: ").rstrip("\n")


def model_of(tmp_path: Path, *parameters: dict) -> Path:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(list(parameters)))
    return path


EVERY_TOPOLOGY = [
    ["ddp"],
    ["fsdp2"],
    ["hsdp", "--replicas", 64],
    ["fsdp1", "--wrap", "per-parameter"],
    ["fsdp1", "--wrap", "per-module"],
    ["fsdp1", "--wrap", "whole-model"],
]


def case_name(words: list) -> str:
    return "-".join(str(w).removeprefix("--") for w in words)


def is_sanitized() -> bool:
    """AddressSanitizer reserves terabytes of address space: no limit on that can be set."""
    return b"__asan_init" in (BIN / "plan_state").read_bytes()


@pytest.mark.parametrize("policy", ["local", "global", "original"])
@pytest.mark.parametrize("topology", EVERY_TOPOLOGY, ids=case_name)
def test_a_million_ranks_of_llama_405b_fit_in_200_mb(topology: list, policy: str) -> None:
    def limit_memory() -> None:
        limit()
        if not is_sanitized():
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))

    words = ["--model", LLAMA, "--world-size", A_MILLION, "--state-policy", policy, "--json"]
    done = run(*words, "--topology", *topology, preexec=limit_memory)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    copies = found["replicas"]
    assert found["a_rank"]["local_numel"]["total"] == LLAMA_NUMEL * copies
    state = found["a_rank"]["state_bytes"]
    assert state["min"] <= state["total"] / A_MILLION <= state["max"]
    assert state["total"] >= 2 * LLAMA_NUMEL * copies


def test_more_ranks_take_no_more_time() -> None:
    """2^40 ranks: a loop over them would end at the limit."""
    for policy in ("global", "original"):
        words = ["--model", LLAMA, "--world-size", 1 << 40, "--state-policy", policy]
        found = plan(*words, "--topology", "fsdp1", "--wrap", "whole-model")
        assert found["a_rank"]["local_numel"]["total"] == LLAMA_NUMEL


def test_ranks_add_up_to_the_summary() -> None:
    for topology in (["fsdp2"], ["hsdp", "--replicas", 3], ["ddp"], ["fsdp1"]):
        words = ["--model", "tiny", "--world-size", 12, "--state-policy", "original"]
        found = plan(*words, "--topology", *topology, "--ranks")
        ranks = found["ranks"]
        assert [r["rank"] for r in ranks] == list(range(12))
        for column, extent in found["a_rank"].items():
            values = [r[column] for r in ranks]
            assert (extent["min"], extent["max"]) == (min(values), max(values)), column
            assert extent["total"] == sum(values), column
            mean = sum(values) / 12
            assert extent["imbalance"] == pytest.approx(max(values) / mean if mean else 1)


def test_the_table_says_what_the_json_says() -> None:
    words = ["--model", "tiny", "--world-size", 3, "--state-policy", "original", "--ranks"]
    text = run(*words).stdout
    found = plan(*words)
    head, summary, traffic, ranks = text.split("\n\n")
    assert head.splitlines() == [
        "tiny: 929664 parameters in 53 tensors, 3 ranks, fsdp2",
        "AdamW8bit, state policy original, the model's dtypes, extra collectives a step: 1",
    ]
    rows = {line.split()[0]: line.split()[1:4] for line in summary.splitlines()[1:]}
    for column, extent in found["a_rank"].items():
        assert rows[column] == [str(extent[k]) for k in ("min", "max", "total")]
    assert len(rows) == len(found["a_rank"])
    assert len({len(line) for line in summary.splitlines()}) == 1, "columns are aligned"
    moved = {line.split()[0]: line.split()[1:] for line in traffic.splitlines()[1:]}
    assert moved == {
        kind: [str(one[k]) for k in ("ranks", "calls", "bytes")]
        for kind, one in found["a_training_step"].items()
    }
    assert len({len(line) for line in traffic.splitlines()}) == 1, "columns are aligned"
    lines = [line.split() for line in ranks.splitlines()]
    assert lines[0] == list(found["ranks"][0])
    assert lines[1:] == [[str(v) for v in r.values()] for r in found["ranks"]]


def test_the_traffic_of_a_step_is_that_of_its_units(tmp_path: Path) -> None:
    """Two blocks of 6 x 10 and 5 elements, and a root of 7 x 10."""
    parameters = [{"name": "embed.weight", "shape": [7, 10]}]
    for block in range(2):
        parameters.append({"name": f"blocks.{block}.up.weight", "shape": [6, 10]})
        parameters.append({"name": f"blocks.{block}.up.bias", "shape": [5]})
    words = ["--model", model_of(tmp_path, *parameters), "--topology"]

    def traffic(*arguments: str | int) -> dict:
        moved = plan(*words, *arguments)["a_training_step"]
        return {kind: tuple(one.values()) for kind, one in moved.items()}

    nothing = (1, 0, 0)
    assert traffic("single") == dict.fromkeys(
        ("all_gather", "reduce_scatter", "all_reduce"), nothing
    )
    # A rank's rows, padded: 2 of the root's 7, 2 of 6 and 2 of 5. Calls: 1 + 2 x 2 gathers.
    root, block = 2 * 10 * 4, (2 * 10 + 2) * 4
    assert traffic("fsdp2", "--world-size", 4) == {
        "all_gather": (4, 5, root + 4 * block),
        "reduce_scatter": (4, 3, 4 * (root + 2 * block)),
        "all_reduce": nothing,
    }
    assert traffic("hsdp", "--world-size", 12, "--replicas", 3, "--dtype", "bf16") == {
        "all_gather": (4, 5, (root + 4 * block) // 2),
        "reduce_scatter": (4, 3, 2 * (root + 2 * block)),
        "all_reduce": (3, 3, (root + 2 * block) // 2),
    }
    # Flat: of 70 and 65 elements a rank has a quarter, rounded up.
    wrap = tmp_path / "units.json"
    wrap.write_text('[["embed"], ["blocks.0"], ["blocks.1"]]')
    assert traffic("fsdp1", "--world-size", 4, "--wrap", wrap) == {
        "all_gather": (4, 6, 2 * (18 + 2 * 17) * 4),  # no unit spans the model
        "reduce_scatter": (4, 3, 4 * (18 + 2 * 17) * 4),
        "all_reduce": nothing,
    }
    assert traffic("fsdp1", "--world-size", 4, "--wrap", "whole-model")["all_gather"] == (4, 1, 200)
    assert traffic("ddp", "--world-size", 4)["all_reduce"] == (4, 1, 200 * 4)


def test_predicted_times_are_those_of_the_model_and_say_that_they_are_predicted() -> None:
    words = ["--model", LLAMA, "--world-size", 16384, "--dtype", "bf16", "--predict"]
    words += ["--latency-ns", 5000, "--bytes-per-s", 10**9]
    found = plan(*words)
    moved, predicted = found["a_training_step"], found["predicted"]
    assert predicted["measured"] is False
    assert (predicted["latency_ns"], predicted["bytes_per_s"]) == (5000, 10**9)
    # By the table of collective_model.h, at a byte a ns: 16,384 ranks, and log2 of that is 14.
    gather, scatter = moved["all_gather"], moved["reduce_scatter"]
    sent = {"all_gather": 16383 * gather["bytes"], "reduce_scatter": scatter["bytes"] // 16384}
    sent["reduce_scatter"] *= 16383
    for kind in sent:
        assert moved[kind]["ranks"] == 16384
        for algorithm, messages in (("ring", 16383), ("tree", 14)):
            expected = moved[kind]["calls"] * messages * 5000 + sent[kind]
            assert predicted[kind][f"{algorithm}_ns"] == expected
    assert predicted["all_reduce"] == {"ring_ns": 0, "tree_ns": 0}
    for time in ("ring_ns", "tree_ns"):
        assert predicted["sum"][time] == sum(predicted[kind][time] for kind in moved)
    *_, table = run(*words).stdout.split("\n\n")
    lines = table.splitlines()
    assert lines[0].split() == ["predicted", "ring", "ms", "tree", "ms"]
    assert lines[-1].startswith("Predicted, not measured: 5000 ns a message, 1000000000 bytes/s")
    for line in lines[1:-1]:
        kind, *times = line.split()
        shown = [int(time.replace(".", "")) for time in times]  # ms with six decimals: ns
        assert shown == list(predicted[kind].values())


def test_no_time_is_predicted_unless_asked_for() -> None:
    assert "predicted" not in plan("--model", "tiny", "--world-size", 4)
    assert error("--model", "tiny", "--latency-ns", 1) == (
        "--latency-ns or --bytes-per-s is given without --predict; add --predict"
    )


def test_a_time_beyond_64_bits_is_refused_before_anything_is_printed() -> None:
    words = ["--model", LLAMA, "--world-size", A_MILLION, "--predict"]
    assert "does not fit in 64 bits" in error(*words, "--bytes-per-s", 1)


# Known from bug reports and measured on bitsandbytes (state: two moments and 2048 bytes of tables).
def test_state_of_8_bit_and_of_small_parameters(tmp_path: Path) -> None:
    for n, size, expected in ((3, 8192, 3 * 16_640 + 2048), (3, 2048, 3 * 16_384)):
        model = model_of(tmp_path, *[{"name": f"w{i}", "shape": [size]} for i in range(n)])
        found = plan("--model", model)["a_rank"]
        assert found["state_bytes"]["total"] == expected
        assert found["numel_8bit"]["total"] == (n * size if size > 4096 else 0)
        assert found["numel_fp32"]["total"] == (0 if size > 4096 else n * size)


def test_precision_follows_the_layout_under_local_alone(tmp_path: Path) -> None:
    model = model_of(tmp_path, {"name": "w", "shape": [6, 1024]})
    for policy, sharded in (("local", 0), ("global", 6144), ("original", 6144)):
        words = ["--model", model, "--topology", "hsdp", "--world-size", 2]
        words += ["--state-policy", policy]
        eight_bit = [plan(*words, "--replicas", r)["a_rank"]["numel_8bit"] for r in (2, 1)]
        assert eight_bit[0]["total"] == 2 * 6144
        assert eight_bit[1]["total"] == sharded


def test_uneven_rows_are_counted_once(tmp_path: Path) -> None:
    model = model_of(tmp_path, {"name": "w", "shape": [1601, 1280]})
    found = plan("--model", model, "--world-size", 4, "--ranks")
    assert [r["local_numel"] for r in found["ranks"]] == [513_280] * 3 + [509_440]
    blocks = [(r["state_bytes"] - 2048 - 2 * r["local_numel"]) // 8 for r in found["ranks"]]
    assert blocks == [2005, 2005, 2005, 1990]


def test_empty_shards_hold_nothing_and_break_no_figure(tmp_path: Path) -> None:
    model = model_of(tmp_path, {"name": "w", "shape": [18, 64]}, {"name": "v", "shape": [2, 64]})
    found = plan("--model", model, "--world-size", 8, "--ranks")
    assert [r["empty_shards"] for r in found["ranks"]] == [0, 0, 1, 1, 1, 1, 2, 2]
    assert [r["state_bytes"] for r in found["ranks"][6:]] == [0, 0]
    everything = json.dumps(found)
    assert "NaN" not in everything and "Infinity" not in everything and "null" in everything


def test_counts_do_not_wrap_at_32_or_64_bits(tmp_path: Path) -> None:
    model = model_of(tmp_path, {"name": "w", "shape": [19_345_706, 128]})
    found = plan("--model", model, "--optimizer", "Lion8bit")["a_rank"]
    assert found["state_bytes"]["max"] == 2_476_250_368 + 4 * 9_672_853 + 2048
    many = ["--model", LLAMA, "--topology", "ddp", "--world-size", 1 << 30]
    assert error(*many) == (
        "the total of local_numel over all ranks does not fit in 64 bits; plan fewer ranks"
    )
    assert error("--world-size", 1 << 63).startswith("--world-size is ")


def test_a_tie_over_two_units_is_refused(tmp_path: Path) -> None:
    tied = {"name": "head.weight", "shape": [5, 8], "tied_to": "embed.weight"}
    model = model_of(tmp_path, {"name": "embed.weight", "shape": [5, 8]}, tied)
    units = tmp_path / "units.json"
    words = ["--model", model, "--topology", "fsdp1", "--world-size", 2, "--wrap", units]
    units.write_text('[["embed"], ["head"]]')
    assert error(*words).startswith("parameter head.weight: it is tied to embed.weight, and the")
    units.write_text('[["embed", "head"]]')
    assert plan(*words)["a_rank"]["local_numel"]["total"] == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--topology", "fsdp3"],
            'unknown topology "fsdp3"; use single, ddp, fsdp2, hsdp or fsdp1',
        ),
        (["--state-policy", "both"], 'unknown state policy "both"; use local, global or original'),
        (
            ["--topology", "hsdp", "--world-size", 6, "--replicas", 4],
            "topology hsdp cannot split 6 ranks into 4 replicas; the world size is replicas x "
            "shards: choose replicas that divide it",
        ),
        (
            ["--wrap", "per-module"],
            "topology fsdp2 has no units to wrap; leave --wrap out, or use fsdp1",
        ),
        (
            ["--topology", "ddp", "--replicas", 2],
            "topology ddp has no replicas to choose; leave --replicas out, or use hsdp",
        ),
        (
            ["--topology", "single", "--world-size", 2],
            "topology single has one rank, not 2; use topology fsdp2 or ddp, or one rank",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments: list, message: str) -> None:
    assert error("--model", "tiny", *arguments) == message


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rank"],
        ["--optimizer", "LAMB"],
        ["--optimizer", "PagedLion8bit"],
        ["--optimizer", "AdEMAMix8bit"],
        ["--max-unorm", 1],
        ["--min-8bit-size", -1],
        ["--world-size", 0],
        ["--replicas", "2x"],
        ["--model", "nowhere.json"],
    ],
)
def test_usage_errors_are_one_line(arguments: list) -> None:
    assert error(*arguments)


def test_a_dtype_that_is_asked_for_makes_a_mixed_unit_one(tmp_path: Path) -> None:
    shapes = [{"name": "a.w", "shape": [8], "dtype": "fp32"}]
    shapes += [{"name": "a.b", "shape": [8], "dtype": "bf16"}]
    words = ["--model", model_of(tmp_path, *shapes), "--topology", "fsdp1", "--world-size", 2]
    assert error(*words).startswith("parameter a.b: it is bf16 and a.w of the same fsdp1 unit")
    assert plan(*words, "--dtype", "bf16")["a_rank"]["parameter_bytes"]["total"] == 32


def test_without_a_model_it_says_which_one_it_has_planned() -> None:
    for words, taken in (
        ([], "gpt2 under fsdp2 on 1 rank"),
        (["--world-size", 8, "--topology", "ddp"], "gpt2 under ddp on 8 ranks"),
    ):
        for form in ([], ["--json"], ["--ranks"]):
            done = run(*words, *form)
            assert done.returncode == 0
            assert done.stderr == f"plan_state: no --model is given; this is {taken}\n"
            assert done.stdout == run("--model", "gpt2", *words, *form).stdout
    assert run("--model", "gpt2").stderr == "", "what was asked for needs no word"


def test_help_and_version_are_answers() -> None:
    usage = run("--help")
    assert usage.returncode == 0 and usage.stderr == ""
    assert "plan_state --model llama-3.1-405b" in usage.stdout
    for column in plan("--model", "tiny")["a_rank"]:
        assert f"\n  {column} " in usage.stdout
    version = run("--version")
    assert version.returncode == 0
    assert version.stdout.startswith("plan_state, stepscope ") and "commit" in version.stdout


def test_a_full_disk_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [BIN / "plan_state", "--model", "tiny"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("plan_state: ") and done.stderr.count("\n") == 1


def test_a_plan_file_holds_the_n_of_every_rank(tmp_path: Path) -> None:
    model = model_of(
        tmp_path,
        {"name": "embed", "shape": [5, 1000]},
        {"name": "frozen", "shape": [64], "requires_grad": False},
        {"name": "bias", "shape": [1]},
    )
    out = tmp_path / "plan.json"
    plan("--model", model, "--world-size", 2, "--plan-out", out)
    document = json.loads(out.read_bytes())
    assert document["world_size"] == 2
    assert document["collectives"] == []
    sizes = {
        rank["rank"]: {tensor["name"]: (tensor["n"], tensor["whole"]) for tensor in rank["tensors"]}
        for rank in document["ranks"]
    }
    assert sizes == {0: {"embed": (3000, 5000), "bias": (1, 1)}, 1: {"embed": (2000, 5000)}}


def test_a_plan_file_declares_the_exchange_of_cut_blocks(tmp_path: Path) -> None:
    model = model_of(tmp_path, {"name": "embed", "shape": [5, 1000]})
    out = tmp_path / "plan.json"
    plan("--model", model, "--world-size", 2, "--state-policy", "original", "--plan-out", out)
    document = json.loads(out.read_bytes())
    assert document["collectives"] == ["all-to-all"]
    # The border at 3000 cuts the block from 2816 to 3072, which both ranks step.
    assert [[tensor["n"] for tensor in rank["tensors"]] for rank in document["ranks"]] == [
        [2816, 256],
        [256, 1928],
    ]


def test_a_plan_file_of_a_huge_job_holds_the_ranks_that_were_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    huge = ("--model", LLAMA, "--world-size", A_MILLION, "--plan-out", out)
    assert "--plan-ranks" in error(*huge)
    assert not out.exists()
    plan(*huge, "--plan-ranks", f"0,{A_MILLION - 1}")
    assert [rank["rank"] for rank in json.loads(out.read_bytes())["ranks"]] == [0, A_MILLION - 1]
    assert "--plan-ranks" in error(*huge, "--plan-ranks", A_MILLION)
    assert "--plan-out" in error("--plan-ranks", 0)
