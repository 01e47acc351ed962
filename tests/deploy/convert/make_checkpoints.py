"""Makes checkpoints/: what torch.save writes of tensors of every kind, and the same tensors as
safetensors writes them.

    python -m venv v && v/bin/pip install torch safetensors numpy packaging
    v/bin/python tests/deploy/convert/make_checkpoints.py

The same input gives the same tensors; the files' bytes follow the versions of torch.
"""

import json
from collections import OrderedDict
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent / "checkpoints"

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def tensors():
    """A state dict with every dtype and every way in which a tensor lies in its storage."""
    torch.manual_seed(7)
    out = OrderedDict()
    for dtype in FLOATS:
        out[f"of.{str(dtype).split('.')[1]}"] = torch.randn(3, 5).to(dtype)
    for dtype in INTEGERS:
        out[f"of.{str(dtype).split('.')[1]}"] = torch.arange(7).to(dtype)
    out["of.bool"] = torch.tensor([[True, False, True]])
    out["scalar"] = torch.tensor(-1e9)
    out["empty"] = torch.empty(0, 4)
    out["parameter"] = torch.nn.Parameter(torch.randn(2, 3))
    out["frozen"] = torch.nn.Parameter(torch.randn(4), requires_grad=False)
    # One storage under two names, as a head that is its embedding.
    out["embedding"] = torch.randn(6, 4)
    out["head"] = out["embedding"]
    base = torch.randn(5, 6, 4)
    out["base"] = base
    out["transposed"] = base[0].t()
    out["permuted"] = base.permute(2, 0, 1)
    out["sliced"] = base[1:4, ::2, 1:3]
    out["row"] = base[2, 3]
    out["column"] = base[2, :, 3]
    out["one.wide"] = base[:, :1, :]
    out["name with \"quotes\", ü and \\"] = torch.ones(1)
    return out


def main():
    HERE.mkdir(exist_ok=True)
    state = tensors()
    # Modules leave the versions of their code there.
    state._metadata = OrderedDict({"": {"version": 1}, "head": {"version": 2}})
    torch.save(state, HERE / "all.bin")
    torch.save(state, HERE / "all_before_1_6.bin", _use_new_zipfile_serialization=False)
    torch.save(dict(list(state.items())[:2]), HERE / "plain_dict.bin")
    save_file({k: v.detach().contiguous().clone() for k, v in state.items()},
              HERE / "all.safetensors", metadata={"format": "pt"})
    parts = HERE / "parts"
    parts.mkdir(exist_ok=True)
    names = list(state)
    weight_map = {}
    for i, part in enumerate((names[:9], names[9:])):
        file = f"pytorch_model-{i + 1:05d}-of-00002.bin"
        torch.save({name: state[name] for name in part}, parts / file)
        weight_map.update({name: file for name in part})
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (parts / "pytorch_model.bin.index.json").write_text(json.dumps(index) + "\n")
    (parts / "config.json").write_text("{}\n")


if __name__ == "__main__":
    main()
