"""A wheel of one module, for the tests of packages."""
import zipfile


def make_wheel(folder, name, words):
    """`import NAME; NAME.WORDS` gives `words`."""
    info = f"{name}-1.0.dist-info"
    files = {f"{name}.py": f"WORDS = {words!r}\n",
             f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    files[f"{info}/RECORD"] = "".join(f"{entry},,\n" for entry in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for entry, text in files.items():
            wheel.writestr(entry, text)
