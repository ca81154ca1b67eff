#!/usr/bin/python3
"""Our networks beside their reference implementations, on the same weights and pictures, through `atelier-vision predict`.

Usage: tests/vision/reference_test.py ATELIER_VISION WEIGHTS.pth

ResNet-18: torchvision's, random weights with random statistics. EfficientNet-Lite0: the package `efficientnet-lite-pytorch`
(of .env-reference, which `scripts/setup test` makes) with WEIGHTS.pth, the ImageNet weights. Logarithms of probabilities are
logits up to a constant: the largest difference must stay below 1e-4 of their range. Exit code 77, and a word on what is
missing, when one of the two could not be compared.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    from PIL import Image
    from torchvision.models import resnet18
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]


def write_safetensors(path, state):
    header, blobs, offset = {}, [], 0
    for name, tensor in state.items():
        if name.endswith("num_batches_tracked"):
            continue
        blob = tensor.detach().contiguous().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def compare(program, folder, backbone, model, mean, std):
    model.eval()
    random = numpy.random.RandomState(1)
    files, pictures = [], []
    for i in range(3):
        pixels = random.randint(0, 256, (14, 14, 3)).astype("uint8").repeat(16, 0).repeat(16, 1)
        files.append(str(folder / f"{i}.png"))
        Image.fromarray(pixels).save(files[-1])
        pictures.append((pixels / 255.0 - mean) / std)
    with torch.no_grad():
        expected = torch.log_softmax(model(torch.tensor(numpy.stack(pictures)).permute(0, 3, 1, 2).float()), 1).numpy()
    count = expected.shape[1]
    write_safetensors(folder / "model.safetensors", model.state_dict())
    (folder / "classes.json").write_text(json.dumps({"classes": [f"c{i}" for i in range(count)]}))
    (folder / "model_card.json").write_text(json.dumps({"backbone": backbone}))
    (folder / "preprocess.json").write_text(json.dumps({
        "width": 224, "height": 224, "mode": "shorter_side", "resize": 224, "interpolation": "bilinear", "channels": 3,
        "mean": mean, "std": std, "apply_orientation": True, "views": ["as_is"]}))
    lines = subprocess.run([program, "predict", "--probabilities", "--model", folder, *files], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    got = numpy.log(numpy.array([json.loads(line)["prediction"] for line in lines]))
    worst = numpy.abs(got - expected).max() / (expected.max() - expected.min())
    print(f"{backbone}: largest difference {worst:.2e} of the range of the logits")
    assert worst < 1e-4, worst


def main():
    program, weights = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = resnet18(num_classes=1000)
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_(0, .2)
                module.running_var.uniform_(.5, 2)
                torch.nn.init.normal_(module.weight, 1, .2)
                torch.nn.init.normal_(module.bias, 0, .2)
        compare(program, folder, "resnet-18", model, (.485, .456, .406), (.229, .224, .225))
    # Behind everything else: only the one module is wanted from there, the torch is the distribution's.
    sys.path += [str(path) for path in ROOT.glob(".env-reference/lib/python3*/site-packages")]
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as missing:
        print(f"skipped: efficientnet-lite0 is not compared: {missing} (scripts/setup test)")
        return 77
    if not weights.exists():
        print(f"skipped: efficientnet-lite0 is not compared: no {weights} (scripts/fetch-weights)")
        return 77
    with tempfile.TemporaryDirectory() as name:
        model = EfficientNet.from_name("efficientnet-lite0")
        model.load_state_dict(torch.load(weights))
        compare(program, pathlib.Path(name), "efficientnet-lite0", model, (127 / 255,) * 3, (128 / 255,) * 3)
    return 0


if __name__ == "__main__":
    sys.exit(main())
