"""Make golden vectors: what bitsandbytes' CPU back end and torch.optim.AdamW compute.

    OMP_NUM_THREADS=1 ATEN_CPU_CAPABILITY=avx2 python generate.py OUT

OUT gets manifest.json, qmaps.json, inputs.bin and one file of arrays per rule. Every array has its
SHA-256; --store says for which sizes the arrays of the last step are stored as well. The defaults
make the directory this file lies in. 8-bit or FP32 state is forced by min_8bit_size, whatever the
size.
"""

import argparse
import hashlib
import json
import struct
from pathlib import Path

import bitsandbytes as bnb
import bitsandbytes.functional as F
import numpy as np
import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
RULES = ("adamw8", "lion8", "adamw32", "lion32", "torch_adamw")
NEVER_8BIT = 1 << 60
STATE_NAMES = {
    "state1": "state1",
    "state2": "state2",
    "absmax1": "absmax1",
    "absmax2": "absmax2",
    "exp_avg": "state1",
    "exp_avg_sq": "state2",
}


def round_square_roots_correctly():
    """Let NumPy take torch's square roots.

    torch leaves them to MKL, whose last bit depends on the processor: wrong for 0.6 % of values on
    some, for 20 % on others, and right on those where MKL_CBWR=AVX2 is obeyed. The kernels follow
    IEEE 754, so these vectors do, too, on whatever processor they are made.
    """

    def square_root(tensor):
        return torch.from_numpy(np.sqrt(tensor.detach().numpy()))

    torch.Tensor.sqrt = square_root
    torch.sqrt = square_root


def raw(tensor):
    tensor = tensor.detach().contiguous()
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.view(torch.int16)
    return tensor.numpy().tobytes()


def make_inputs(args, numel, dtype_name):
    """Return the parameter and one gradient per step.

    Gradients hold outliers, exact zeros, a block that is zero for two steps, and +-absmax in one.
    """
    seed = [args.seed, numel, list(DTYPES).index(dtype_name)]
    random = np.random.Generator(np.random.PCG64(seed))
    dtype = DTYPES[dtype_name]
    param = (random.standard_normal(numel) * 0.5).astype(np.float32)
    grads = []
    at = np.arange(numel)
    for step in range(args.steps):
        grad = random.standard_normal(numel) * 0.1
        spread = 10.0 ** random.uniform(-4, 1, numel)
        grad = np.where(at % 7 == 3, grad * spread, grad)
        grad[at % 11 == 5] = 0.0
        if numel >= 4095 and step < 2:
            grad[256:512] = 0.0
        if numel >= 4095 and step == 3:
            grad[600], grad[601] = -8.0, 8.0
        grads.append(torch.from_numpy(grad.astype(np.float32)).to(dtype))
    return torch.from_numpy(param).to(dtype), grads


def make_optimizer(args, rule, param, weight_decay):
    adamw = {
        "lr": args.lr,
        "betas": args.adamw_betas,
        "eps": args.eps,
        "weight_decay": weight_decay,
    }
    lion = {"lr": args.lr, "betas": args.lion_betas, "weight_decay": weight_decay}
    if rule == "adamw8":
        return bnb.optim.AdamW8bit([param], min_8bit_size=0, **adamw)
    if rule == "lion8":
        return bnb.optim.Lion8bit([param], min_8bit_size=0, **lion)
    if rule == "adamw32":
        return bnb.optim.AdamW8bit([param], min_8bit_size=NEVER_8BIT, **adamw)
    if rule == "lion32":
        return bnb.optim.Lion8bit([param], min_8bit_size=NEVER_8BIT, **lion)
    return torch.optim.AdamW([param], **adamw)


class Arrays:
    """The binary files under construction, and the manifest's entries for arrays in them."""

    def __init__(self):
        self.files = {}

    def entry(self, data, dtype, shape):
        return {
            "nbytes": len(data),
            "dtype": dtype,
            "shape": list(shape),
            "sha256": hashlib.sha256(data).hexdigest(),
        }

    def stored(self, stem, data, dtype, shape):
        file = self.files.setdefault(f"{stem}.bin", bytearray())
        entry = {"file": f"{stem}.bin", "offset": len(file), **self.entry(data, dtype, shape)}
        file += data
        return entry


def run_case(args, arrays, rule, dtype, numel, weight_decay):
    start, grads = make_inputs(args, numel, dtype)
    param = torch.nn.Parameter(start.clone())
    optimizer = make_optimizer(args, rule, param, weight_decay)
    steps = []
    for step, grad in enumerate(grads, 1):
        param.grad = grad.clone()
        optimizer.step()
        state = optimizer.state[param]
        tensors = {"p": param}
        tensors |= {STATE_NAMES[name]: state[name] for name in STATE_NAMES if name in state}
        record = {"step": step}
        for name, tensor in tensors.items():
            kind = dtype if name == "p" else ("u8" if tensor.dtype == torch.uint8 else "fp32")
            if numel in args.store and step == args.steps:
                record[name] = arrays.stored(rule, raw(tensor), kind, tensor.shape)
            else:
                record[name] = arrays.entry(raw(tensor), kind, tensor.shape)
        steps.append(record)
    return {"algo": rule, "dtype": dtype, "n": numel, "weight_decay": weight_decay, "steps": steps}


def code_table_bits(signed):
    values = F.create_dynamic_map(signed)
    return [f"{struct.unpack('<I', struct.pack('<f', float(value)))[0]:08x}" for value in values]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="directory to write; made if it does not exist")
    sizes = [1, 255, 256, 257, 4095, 4096, 4097, 65549]
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes)
    parser.add_argument("--store", type=int, nargs="*", default=[257], help="sizes to store")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    parser.add_argument("--seed", type=int, default=20251201)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--eps", type=float, default=1e-8)
    parser.add_argument("--adamw-betas", type=float, nargs=2, default=[0.9, 0.999])
    parser.add_argument("--lion-betas", type=float, nargs=2, default=[0.9, 0.99])
    parser.add_argument("--weight-decays", type=float, nargs="+", default=[0.0, 0.1])
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.set_num_threads(1)
    round_square_roots_correctly()
    arrays = Arrays()
    manifest = {"arrays": {}, "cases": []}
    for dtype in DTYPES:
        for numel in args.sizes:
            param, grads = make_inputs(args, numel, dtype)
            manifest["arrays"][f"{dtype}/{numel}"] = {
                "p0": arrays.stored("inputs", raw(param), dtype, [numel]),
                "grads": [arrays.stored("inputs", raw(grad), dtype, [numel]) for grad in grads],
            }
    for rule in args.rules:
        for dtype in DTYPES if rule != "torch_adamw" else ("fp32",):
            for numel in args.sizes:
                for weight_decay in args.weight_decays:
                    case = run_case(args, arrays, rule, dtype, numel, weight_decay)
                    manifest["cases"].append(case)
    manifest["meta"] = {
        "torch": torch.__version__,
        "bitsandbytes": bnb.__version__,
        "numpy": np.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "lr": args.lr,
        "adamw": {"betas": args.adamw_betas, "eps": args.eps},
        "lion": {"betas": args.lion_betas, "eps": 0.0},
        "blocksize": 256,
        "steps": args.steps,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    for name, data in arrays.files.items():
        (args.out / name).write_bytes(data)
    (args.out / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":")) + "\n")
    maps = {"dynamic_signed": code_table_bits(True), "dynamic_unsigned": code_table_bits(False)}
    (args.out / "qmaps.json").write_text(json.dumps(maps, indent=0) + "\n")


if __name__ == "__main__":
    main()
