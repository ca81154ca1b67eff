"""Writes weight files with the real PyTorch, and what is in them as JSON, for weights_test.cc.

Usage: python3 weights_test_files.py FOLDER
"""
import collections
import json
import os
import pathlib
import sys

import torch

folder = pathlib.Path(sys.argv[1])
torch.manual_seed(7)


def digest(tensor):
    """Shape, type and the sum and first values in double precision: enough to notice any mix-up."""
    values = tensor.detach().double().flatten()
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).replace("torch.", ""),
            "sum": float(values.sum()), "head": [float(v) for v in values[:4]]}


def save(name, value, tensors):
    for suffix, zipped in (("zip", True), ("legacy", False)):
        torch.save(value, folder / f"{name}.{suffix}.pth", _use_new_zipfile_serialization=zipped)
    (folder / f"{name}.json").write_text(json.dumps({key: digest(t) for key, t in tensors.items()}))


net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.BatchNorm2d(8), torch.nn.Linear(8, 5))
state = net.state_dict()
save("net", state, state)
save("parameters", dict(net.named_parameters()), dict(net.named_parameters()))

base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
kinds = {f"as_{str(d).replace('torch.', '')}": torch.tensor([[0, 1], [1, 2]]).to(d)
         for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
                   torch.int8, torch.uint8, torch.bool)}
shapes = {"scalar": torch.tensor(3.5), "empty": torch.zeros(0, 4), "transposed": base.permute(2, 0, 1),
          "slice": base[1, :, 1:3], "shared": base, "channels_last": base.reshape(1, 2, 3, 4).contiguous(
              memory_format=torch.channels_last)}
save("kinds", kinds, kinds)
save("shapes", shapes, shapes)

wrapped = collections.OrderedDict(("module." + key, value) for key, value in state.items())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
save("checkpoint", {"epoch": 3, "best": 0.5, "arch": "net", "big": 2**70, "minus": -5, "nothing": None, "yes": True,
                    "state_dict": wrapped, "optimizer": optimizer.state_dict()}, state)
save("expanded", {"x": torch.ones(1).expand(1000000)}, {})


class Evil:
    def __reduce__(self):
        return os.system, (f"touch {folder}/was-run",)


save("evil", {"weight": torch.ones(2), "x": Evil()}, {})
save("whole", net, {})
torch.jit.save(torch.jit.script(net), folder / "script.pt")
