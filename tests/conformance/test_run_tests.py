"""What scripts/run-tests makes of a real ctest run: what was not run is counted and named."""
import importlib.machinery
import importlib.util
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def run_tests(tmp_path):
    loader = importlib.machinery.SourceFileLoader("run_tests", str(ROOT / "scripts/run-tests"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_tests", loader))
    loader.exec_module(module)
    module.OUT = tmp_path
    return module


def ctest(folder, programs):
    lines = []
    for name, script in programs.items():
        (folder / name).write_text("#!/bin/sh\n" + script)
        (folder / name).chmod(0o755)
        lines += [f'add_test({name} "{folder / name}")', f"set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)"]
    (folder / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
    subprocess.run(["ctest", "--test-dir", folder, "--output-junit", folder / "unit.xml"], capture_output=True)
    return folder / "unit.xml"


def test_a_program_that_was_not_run_is_counted_by_its_tests_and_named(run_tests, tmp_path):
    junit = ctest(tmp_path, {"good": "exit 0", "bad": "echo why it fails; exit 1",
                             "lacks_one": "echo skipped: no such tool; exit 77",
                             "lacks_many": "echo starts; echo skipped: no such store: 28 tests were not run; exit 77"})
    tally = run_tests.Tally()
    run_tests.count_ctest(junit, tally)
    assert (tally.passed, tally.skipped, len(tally.failures)) == (1, 29, 1), vars(tally)
    assert tally.not_run == ["lacks_one: no such tool", "lacks_many: no such store: 28 tests were not run"]


def test_a_check_of_the_format_without_its_clang_format_is_skipped_by_name_and_finds_what_is_wrong(tmp_path):
    for tool in ("bash", "dirname", "git", "env"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    check = [ROOT / "tools/format", "--check"]
    done = subprocess.run(check, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (77, "skipped: clang-format-14 is not installed\n"), done
    (tmp_path / "clang-format").write_text("#!/bin/sh\necho clang-format version 19.1.7\n")
    (tmp_path / "clang-format").chmod(0o755)
    done = subprocess.run(check, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 77 and "is not version 14" in done.stdout, done
    if shutil.which("clang-format-14"):
        wrong = tmp_path / "wrong.cc"
        wrong.write_text("int  main( ) { }\n")
        assert subprocess.run([*check, wrong], capture_output=True).returncode == 1


def test_a_machine_without_ceph_says_how_many_tests_of_the_contract_it_does_not_run(tmp_path):
    program = ROOT / "build/release/bin/object_store_contract_test"
    if not program.exists():
        pytest.skip("object_store_contract_test is not built: make unit")
    for tool in ("bash", "dirname", "grep"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    done = subprocess.run([ROOT / "tests/contract/run_rgw", "unused", program, "--gtest_filter=*CephRgw*"],
                          env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 77, done
    assert done.stdout == "skipped: ceph is not installed: 28 tests were not run\n", done
