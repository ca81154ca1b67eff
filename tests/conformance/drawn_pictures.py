"""Small pictures of three classes that are easy to tell apart, and the files that SageMaker's image
classification reads them from: .lst, RecordIO, augmented manifests. Written by the formats' descriptions,
with the standard library alone."""
import json
import random
import struct
import zlib

SIDE = 24
CLASSES = ("dark", "light", "striped")
MAGIC = struct.pack("<I", 0xCED7230A)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(kind, seed, extra=b""):
    """A grey picture; `extra` goes into a private chunk, which every reader passes over."""
    rng = random.Random(seed * len(CLASSES) + kind)
    rows = bytearray()
    for y in range(SIDE):
        level = (40, 190, 30 if y % 6 < 3 else 190)[kind]
        rows += b"\0" + bytes(level + rng.randrange(60) for _ in range(SIDE))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 0, 0, 0, 0))
            + (chunk(b"teSt", extra) if extra else b"") + chunk(b"IDAT", zlib.compress(bytes(rows))) + chunk(b"IEND", b""))


def pictures(first, count):
    """(name, class number, bytes), the classes in turn."""
    return [(f"{CLASSES[i % 3]}/{i:03}.png", i % 3, png(i % 3, i)) for i in range(first, first + count)]


def lst(rows):
    """SageMaker's: index, class (or one 0 or 1 for each class) and path, tabs between them."""
    return "".join("\t".join([str(index), *map(str, labels), path]) + "\n"
                   for index, (labels, path) in enumerate(rows, 5)).encode()


def part(kind, payload):
    return MAGIC + struct.pack("<I", kind << 29 | len(payload)) + payload + bytes(-len(payload) % 4)


def record(labels, number, picture):
    """One record as MXNet's im2rec writes it: IRHeader, further labels, the picture; cut at every word of the
    payload that is the magic number, which is then left out."""
    if len(labels) == 1:
        payload = struct.pack("<IfQQ", 0, labels[0], number, 0) + picture
    else:
        payload = struct.pack(f"<IfQQ{len(labels)}f", len(labels), 0, number, 0, *labels) + picture
    cuts = [at for at in range(0, len(payload) - 3, 4) if payload[at:at + 4] == MAGIC]
    if not cuts:
        return part(0, payload)
    starts, ends = [0] + [at + 4 for at in cuts], cuts + [len(payload)]
    kinds = [1] + [2] * (len(cuts) - 1) + [3]
    return b"".join(part(kind, payload[start:end]) for kind, start, end in zip(kinds, starts, ends))


def manifest(rows, uri):
    """An augmented manifest as Ground Truth writes it: (path, class number) of pictures below `uri`."""
    return "".join(json.dumps({"source-ref": f"{uri}/{path}", "class": str(label),
                               "class-metadata": {"class-name": CLASSES[label], "confidence": 0.9}}) + "\n"
                   for path, label in rows).encode()
