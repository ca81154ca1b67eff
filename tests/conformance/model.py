"""Service models as an oracle: what a request breaks, and whether a reply is what the model says.

Written from botocore's models alone, without a look at how the server reads them, so that the two can be
compared.
"""
import functools
import re
import sys
import unicodedata

# Enums that the server opens: its own table of machines decides.
OPEN_ENUMS = {"TrainingInstanceType"}
INT32 = (-2**31, 2**31 - 1)
INT64 = (-2**63, 2**63 - 1)


@functools.cache
def unicode_class(letter):
    """The inside of a character class that holds all characters of a major category, such as L."""
    ranges, start = [], None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code))[0] == letter
        if inside and start is None:
            start = code
        if not inside and start is not None:
            ranges.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return "".join(ranges)


@functools.cache
def pattern_of(text):
    text = text.replace(r"\p{Alnum}", "a-zA-Z0-9")
    text = re.sub(r"\\p\{([A-Z])\}", lambda match: unicode_class(match.group(1)), text)
    return re.compile(text, re.ASCII)


def wire_name(name):
    return name[0].lower() + name[1:]


class WrongType(Exception):
    pass


def metadata_of(shape):
    return {**shape.metadata, "enum": shape.metadata.get("enum") if shape.name not in OPEN_ENUMS else None}


def errors_of(shape, value, path=""):
    """Paths of the constraints that `value` breaks, once for each; raises WrongType(path)."""
    kind = shape.type_name
    limits = metadata_of(shape)
    errors = []

    def out_of_bounds(number):
        errors.extend([path] * (("max" in limits and number > limits["max"]) +
                                ("min" in limits and number < limits["min"])))

    if kind == "structure":
        if not isinstance(value, dict):
            raise WrongType(path)
        for name, member in shape.members.items():
            inside = f"{path}.{wire_name(name)}".lstrip(".")
            if value.get(name) is not None:
                errors += errors_of(member, value[name], inside)
            elif name in shape.required_members:
                errors.append(inside)
    elif kind == "list":
        if not isinstance(value, list):
            raise WrongType(path)
        out_of_bounds(len(value))
        for number, element in enumerate(value, 1):
            errors += element_errors(shape.member, element, f"{path}.{number}.member")
    elif kind == "map":
        if not isinstance(value, dict):
            raise WrongType(path)
        out_of_bounds(len(value))
        for key, element in value.items():
            errors += errors_of(shape.key, key, path) + element_errors(shape.value, element, f"{path}.{key}.member")
    elif kind in ("string", "blob"):
        if not isinstance(value, str):
            raise WrongType(path)
        out_of_bounds(len(value))
        raw = shape_pattern(shape)
        errors += [path] * bool(raw is not None and not pattern_of(raw).fullmatch(value))
        errors += [path] * bool(limits["enum"] and value not in limits["enum"])
    elif kind == "boolean":
        if not isinstance(value, bool):
            raise WrongType(path)
    elif kind in ("integer", "long"):
        low, high = INT32 if kind == "integer" else INT64
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise WrongType(path)
        out_of_bounds(value)
    elif kind in ("float", "double", "timestamp"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise WrongType(path)
    return errors


def element_errors(shape, value, path):
    """Of an element of a list or a map, where null is not the same as absent."""
    return [path] if value is None else errors_of(shape, value, path)


def shape_pattern(shape):
    return shape.metadata.get("pattern")


def misfits(shape, value, path="reply"):
    """What in a reply is not in the model, has another type or lacks what is required."""
    kind = shape.type_name
    types = {"structure": dict, "map": dict, "list": list, "string": str, "boolean": bool, "integer": int,
             "long": int, "float": (int, float), "double": (int, float), "timestamp": (int, float), "blob": str}
    if not isinstance(value, types[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return [f"{path}: {value!r} is not a {kind}"]
    found = []
    if kind == "structure":
        found += [f"{path}.{name} is not in the model" for name in value if name not in shape.members]
        found += [f"{path}.{name} is required" for name in shape.required_members if name not in value]
        for name, member in shape.members.items():
            if name in value:
                found += misfits(member, value[name], f"{path}.{name}")
    elif kind == "list":
        for number, element in enumerate(value):
            found += misfits(shape.member, element, f"{path}[{number}]")
    elif kind == "map":
        for key, element in value.items():
            found += misfits(shape.value, element, f"{path}[{key!r}]")
    elif metadata_of(shape)["enum"] and value not in metadata_of(shape)["enum"]:
        found.append(f"{path}: {value!r} is not one of {metadata_of(shape)['enum']}")
    elif kind == "string" and "max" in shape.metadata and len(value) > shape.metadata["max"]:
        found.append(f"{path}: longer than {shape.metadata['max']}")
    return found
