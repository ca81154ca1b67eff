"""script_mode beside the real sagemaker-training-toolkit, variable by variable.

The toolkit reads its folder (SAGEMAKER_BASE_DIR) when it is imported, so that a subprocess runs it
once for all cases over one folder; ours (print_script_job) answers a request a line.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = ROOT / "build/release/bin/print_script_job"

RESOURCES = {
    "current_host": "algo-1", "current_instance_type": "ml.m5.xlarge",
    "current_group_name": "homogeneousCluster", "hosts": ["algo-1"],
    "instance_groups": [{"instance_group_name": "homogeneousCluster",
                         "instance_type": "ml.m5.xlarge", "hosts": ["algo-1"]}],
    "network_interface_name": "eth0", "topology": None}
CHANNEL = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated",
           "RecordWrapperType": "None"}
SDK = {"sagemaker_program": '"train.py"', "sagemaker_container_log_level": "20",
       "sagemaker_submit_directory": '"s3://code/job/source/sourcedir.tar.gz"',
       "sagemaker_job_name": '"job-1"', "sagemaker_region": '"us-west-2"'}

TWO_HOSTS = {"hosts": ["algo-1", "algo-2"], "instance_groups": [
    {"instance_group_name": "homogeneousCluster", "instance_type": "ml.m5.xlarge",
     "hosts": ["algo-1", "algo-2"]}]}

# name -> (hyperparameters over SDK's, changes of the resource config, channels, environment)
CASES = {
    "article": ({"lr": "0.1", "opt": '"adam"', "flag": "true"}, {}, {"training": CHANNEL}, {}),
    "none at all": ({}, {}, {}, {}),
    "numbers": ({"tiny": "1e-05", "huge": "1E400", "minus": "-1E400", "big": "9" * 40, "zero": "-0",
                 "negzero": "-0.0", "sixteen": "1e16", "fifteen": "1e15", "long": "0.1234567890123456789",
                 "nan": "NaN", "inf": "Infinity", "third": "0.30000000000000004",
                 "subnormal": "5e-324", "exp": "1.5E+3", "max": "1.7976931348623157e308"}, {}, {}, {}),
    "not json": ({"path": "s3://bucket/key", "word": "adam", "leading": "01", "dot": "1.",
                  "single": "{'a': 1}", "trailing": "[1,]", "space": " ", "half": '"abc',
                  "pluses": "+1", "control": '"a\nb"', "bom": "\ufeff1", "many": "9" * 4301}, {}, {}, {}),
    "nothing": ({"null": "null", "empty": "", "quotes": '""', "list": "[]", "dict": "{}"}, {}, {}, {}),
    "booleans": ({"yes": "true", "no": "false", "python": "True", "nested": "[true, false, null]"},
                 {}, {}, {}),
    "one letter": ({"b": "1", "A": "2", "é": "3", "😀": "4", "aa": "5"}, {}, {}, {}),
    "nested": ({"tree": json.dumps({"z": [1, {"y": None, "x": [True, "it's"]}], "a": {"k": 1e-7}}),
                "order": '{"b": 1, "a": 2, "b": 3}', "lists": '[[1.0, 2], ["a", \'"\']]',
                "lists2": '[[1.0, 2], ["a", "\\""]]'}, {}, {}, {}),
    "unicode": ({"clé": '"été 😀"', "straße": '"\\u00e9\\ud83d\\ude00"', "ﬁn": '["é", "\\u200b", "\\u00ad"]',
                 "ǆ": "1", "ΐ": "2", "я-ÿ": '{"ключ": "значение"}', "escapes": '["\\u007f\\t\\n\\r\\b\\u0001"]',
                 "lone": '["\\ud800", "\\udc80x"]', "byte": '"\\udc80"',
                 "marks": json.dumps(["\u0378", "\u2028", "\ue000", "\U000e0001", "\u3000", "\xa0"])},
                {}, {}, {}),
    "quotes": ({"q1": '"it\'s"', "q2": json.dumps('say "x"'), "q3": json.dumps(["both ' \""]),
                "q4": json.dumps("a\\b $HOME `x` \n two")}, {}, {}, {}),
    "case clash": ({"LR": "1", "lr": "2", "Lr": "3"}, {}, {"a": CHANNEL, "A": CHANNEL}, {}),
    "hyphens": ({"batch-size": "64", "learning.rate": "0.1", "with space": "1"}, {}, {"train-set": CHANNEL}, {}),
    "framework": ({"sagemaker_s3_extra": '"x"', "sagemaker_instance_type": '"ml.x"',
                   "_tuning_objective_metric": "acc", "sagemaker_enable_cloudwatch_metrics": "false",
                   "default_user_module_name": '"m"'}, {}, {}, {}),
    "script only": ({"sagemaker_program": '"src/run.sh"', "sagemaker_region": None,
                     "a b": '"c d"', "q": '"it\'s"'}, {}, {}, {}),
    "no hints": ({"sagemaker_program": '"train.py"', "sagemaker_submit_directory": None,
                  "sagemaker_container_log_level": None, "sagemaker_job_name": None,
                  "sagemaker_region": None}, {}, {}, {}),
    "program by environment": ({"sagemaker_program": None}, {}, {},
                               {"SAGEMAKER_PROGRAM": "train.py", "TRAINING_JOB_NAME": "job-1"}),
    "model parallel": ({}, {}, {}, {"SM_HP_MP_PARAMETERS": "{}"}),
    "torchrun": ({"sagemaker_torch_distributed_enabled": "true", "x": "1"}, {}, {}, {}),
    "torchrun, many processes": ({"sagemaker_torch_distributed_enabled": "true",
                                  "sagemaker_mpi_num_of_processes_per_host": "3"}, {}, {}, {}),
    "torchrun, first of two": ({"sagemaker_torch_distributed_enabled": "true"}, TWO_HOSTS, {}, {}),
    "torchrun, second of two": ({"sagemaker_torch_distributed_enabled": "true", "x": '{"a": [1]}'},
                                {**TWO_HOSTS, "current_host": "algo-2"}, {}, {}),
    "torchrun, ten hosts": ({"sagemaker_torch_distributed_enabled": "true"},
                            {"current_host": "algo-10", "instance_groups": None,
                             "hosts": sorted(f"algo-{n}" for n in range(1, 12))}, {}, {}),
    "torchrun of another group": (
        {"sagemaker_torch_distributed_enabled": "true",
         "sagemaker_distribution_instance_groups": '["b"]'},
        {"hosts": ["algo-1", "algo-2"], "current_group_name": "a", "instance_groups": [
             {"instance_group_name": "a", "instance_type": "ml.m5.xlarge", "hosts": ["algo-1"]},
             {"instance_group_name": "b", "instance_type": "ml.m5.xlarge", "hosts": ["algo-2"]}]},
        {}, {}),
    "mpi": ({"sagemaker_mpi_enabled": "true", "lr": "0.1"}, {}, {"train": CHANNEL}, {}),
    "mpi, many processes": (
        {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "4",
         "sagemaker_mpi_custom_mpi_options": '"--NCCL_DEBUG WARN -x A=1 -verbose --NCCL_X=2"'}, {}, {}, {}),
    "mpi, a number of processes": (
        {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_processes": "3",
         "sagemaker_mpi_num_of_processes_per_host": "2",
         "sagemaker_mpi_custom_mpi_options": '"--NCCL_DEBUG=TRACE"'}, {}, {}, {}),
    "mpi of a command": ({"sagemaker_mpi_enabled": "true", "sagemaker_program": '"src/run.sh"'}, {}, {}, {}),
    "mpi off": ({"sagemaker_mpi_enabled": "false", "sagemaker_parameter_server_enabled": "true",
                 "sagemaker_multi_worker_mirrored_strategy_enabled": "true"}, {}, {}, {}),
    "old resource config": ({}, {"current_instance_type": None, "current_group_name": None,
                                 "instance_groups": None, "network_interface_name": None,
                                 "topology": None}, {}, {}),
    "topology": ({}, {"topology": [{"hostName": "algo-1", "capacityUnitId": 3}]}, {}, {}),
    "two hosts, two groups": (
        {"sagemaker_distribution_instance_groups": '["b"]'},
        {"hosts": ["algo-1", "algo-2"], "current_host": "algo-2", "current_group_name": "b",
         "instance_groups": [
             {"instance_group_name": "a", "instance_type": "ml.m5.xlarge", "hosts": ["algo-1"]},
             {"instance_group_name": "b", "instance_type": "ml.g5.xlarge", "hosts": ["algo-2"]}]},
        {"train": CHANNEL}, {}),
}

# Answers each request line in a fork of its own: what is slow to import is imported once.
TOOLKIT = r'''
import asyncio, json, os, sys
import boto3, numpy, retrying, six

def describe(request):
    os.environ.clear()
    os.environ.update(request["environment"])
    os.environ["SAGEMAKER_BASE_DIR"] = request["base_folder"]
    os.environ["SAGEMAKER_TRAINING_MODULE"] = request["framework_module"]
    os.environ["PATH"] = request["path"]
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    before = dict(os.environ)
    from sagemaker_training import environment, runner
    from sagemaker_pytorch_container import training
    env = environment.Environment()
    training._set_nccl_environment(env.network_interface_name)
    training._set_distributed_environment(env)
    variables = env.to_env_vars()
    kind = runner.ProcessRunnerType
    if env.current_instance_group in env.distribution_instance_groups:
        asked = env.additional_framework_parameters.get
        if asked("sagemaker_mpi_enabled"):
            kind = runner.MPIRunnerType
        elif asked("sagemaker_torch_distributed_enabled"):
            kind = runner.TorchDistributedRunnerType
    argv = runner.get(kind, env.user_entry_point, env.to_cmd_args(), variables)._create_command()
    environment.write_env_vars(dict(variables))
    return {"environment": {k: v for k, v in os.environ.items() if before.get(k) != v},
            "argv": argv, "python": sys.executable, "code": environment.code_dir,
            "cpus": environment.num_cpus()}

def fail(request):
    os.environ["SAGEMAKER_BASE_DIR"] = request["base_folder"]
    from sagemaker_training import errors, runner
    made = runner.get(runner.ProcessRunnerType, "train.py", ["--lr", "0.1"], {"X": "1"})
    try:
        made.run(wait=True, capture_error=True)
    except errors.ClientError as error:
        return {"text": str(error), "python": sys.executable}

import logging
logging.disable(logging.CRITICAL)
replies = os.fdopen(os.dup(1), "w", encoding="ascii")
os.dup2(2, 1)  # what the scripts print is no reply
for line in sys.stdin:
    request = json.loads(line)
    if os.fork() == 0:
        reply = {"describe": describe, "fail": fail}[request["do"]](request)
        print(json.dumps(reply), file=replies, flush=True)
        os._exit(0)
    if os.wait()[1] != 0:
        print("null", file=replies, flush=True)
'''


def without_none(members):
    return {name: value for name, value in members.items() if value is not None}


class Lines:
    """A program that answers one line of JSON with another."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        encoding="utf-8", errors="surrogateescape",
                                        env={**os.environ, "PYTHONUTF8": "1"})

    def __call__(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)


@pytest.fixture(scope="session")
def ask():
    if not OURS.exists():
        pytest.fail(f"{OURS} is not built: run make")
    lines = Lines(OURS)
    yield lines
    lines.close()


@pytest.fixture(scope="session")
def toolkit():
    lines = Lines(sys.executable, "-c", TOOLKIT)
    yield lines
    lines.close()


@pytest.fixture(scope="session")
def path_with_which(tmp_path_factory):
    """A PATH with `which`, which the toolkit needs, and no nvidia-smi, neuron-ls or smddprun."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "which").symlink_to(shutil.which("which"))
    return str(folder)


def write_folder(folder, hyperparameters, resources, channels):
    config = folder / "input/config"
    config.mkdir(parents=True)
    for name, value in (("hyperparameters", hyperparameters), ("resourceconfig", resources),
                        ("inputdataconfig", channels)):
        (config / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    (folder / "code/src").mkdir(parents=True)
    for name in ("train.py", "src/run.sh"):
        (folder / "code" / name).write_text("")


@pytest.mark.parametrize("name", CASES)
def test_a_script_sees_what_the_toolkit_shows_it(name, ask, toolkit, path_with_which, tmp_path):
    hyperparameters, changes, channels, extra = CASES[name]
    hyperparameters = dict(sorted(without_none({**SDK, **hyperparameters}).items()))
    resources = without_none({**RESOURCES, **changes})
    folder = tmp_path / "ml"
    write_folder(folder, hyperparameters, resources, channels)
    request = {"environment": {"LANG": "C.UTF-8", **extra}, "base_folder": str(folder),
               "framework_module": "sagemaker_pytorch_container.training:main"}
    theirs = toolkit({**request, "do": "describe", "path": path_with_which})
    ours = ask({**request, "hyperparameters": hyperparameters, "python": theirs["python"],
                "resource_config": json.dumps(resources), "input_data_config": json.dumps(channels),
                "num_cpus": theirs["cpus"], "has_mpirun": True, "code_folder": str(folder / "code")})
    assert "error" not in ours, ours

    want = theirs["environment"]
    got = {key: value for key, value in {**ours["environment"], **ours["steps"][-1]["environment"]}.items()
           if request["environment"].get(key) != value}
    # Of the path of the interpreter that runs the script, only the code folder is new.
    assert got.pop("PYTHONPATH") == theirs["code"]
    del want["PYTHONPATH"]
    different = {key: (got.get(key), want.get(key)) for key in want.keys() | got.keys()
                 if got.get(key) != want.get(key)}
    assert not different, "key: (ours, the toolkit's)"
    ours_argv, ours_exported = without_exports(ours["steps"][-1]["argv"])
    theirs_argv, theirs_exported = without_exports(theirs["argv"])
    assert ours_argv == theirs_argv
    assert theirs_exported <= ours_exported


def without_exports(argv):
    """The command, and the variables that mpirun is told to hand on by their names alone. The toolkit
    preloads a library that renames the host; a sandbox has its name."""
    if argv[0] != "mpirun":
        return argv, set()
    kept, names = [], set()
    words = iter(argv)
    for word in words:
        value = next(words) if word == "-x" else None
        if value is None:
            kept.append(word)
        elif "=" not in value:
            names.add(value)
        elif not value.startswith("LD_PRELOAD="):
            kept += [word, value]
    return kept, names


def uncut(text):
    return re.sub(r"[\s:]+", " ", text)


REFUSED = {
    "a name with an equals sign": {"a=b": "1"},
    "a zero character": {"a": '"x\\u0000"'},
    "a program outside of the source": {"sagemaker_program": '"../train.py"'},
    "a program that reads as an option": {"sagemaker_program": '"-c"'},
    "no program": {"sagemaker_program": '""'},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_ends_the_toolkit_is_refused(name, ask, toolkit, path_with_which, tmp_path):
    hyperparameters = {**SDK, **REFUSED[name]}
    folder = tmp_path / "ml"
    write_folder(folder, hyperparameters, RESOURCES, {})
    request = {"environment": {"LANG": "C.UTF-8"}, "base_folder": str(folder),
               "framework_module": "sagemaker_pytorch_container.training:main"}
    assert toolkit({**request, "do": "describe", "path": path_with_which}) is None
    ours = ask({**request, "hyperparameters": hyperparameters,
                "resource_config": json.dumps(RESOURCES), "input_data_config": "{}",
                "code_folder": str(folder / "code")})
    assert ours["error"]


FAILURES = {
    "an exception": "print('epoch 1')\nraise ValueError('no pictures: bad')",
    "a chained exception":
        "try:\n  {}['x']\nexcept KeyError as e:\n  raise RuntimeError('two') from e",
    "an exit code without words": "import sys\nsys.exit(7)",
    "doubled lines": "import sys\n"
                     "for i in range(5): print('OSError: same', file=sys.stderr)\nsys.exit(2)",
    "137": "import sys\nsys.exit(137)",
    "a signal": "import os\nos.kill(os.getpid(), 11)",
    "not UTF-8": "import sys\nsys.stderr.buffer.write(b'ValueError: \\xff\\n')\nsys.exit(1)",
    "a module that is missing": "import no_such_module",
    "no Python at all": "x = = 1",
}


@pytest.mark.parametrize("name", FAILURES)
def test_the_failure_file_has_the_toolkits_words(name, ask, toolkit, tmp_path):
    folder = tmp_path / "ml"
    hyperparameters = {"sagemaker_program": '"train.py"', "lr": "0.1"}
    write_folder(folder, hyperparameters, RESOURCES, {})
    (folder / "code/train.py").write_text(FAILURES[name])
    theirs = toolkit({"do": "fail", "base_folder": str(folder)})

    ran = subprocess.run([theirs["python"], "--", "train.py", "--lr", "0.1"], cwd=folder / "code",
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    exit_code, signal = (ran.returncode, 0) if ran.returncode >= 0 else (0, -ran.returncode)
    ours = ask({"hyperparameters": hyperparameters, "python": theirs["python"],
                "resource_config": json.dumps(RESOURCES), "input_data_config": "{}",
                "base_folder": str(folder), "code_folder": str(folder / "code"),
                "output": ran.stdout.decode("utf-8", "replace").splitlines(),
                "exit_code": exit_code, "signal": signal})
    # The toolkit cuts a line wherever a read of the pipe happened to end, and drops blanks and colons
    # at the cut; ours keeps lines whole.
    assert uncut(ours["steps"][-1]["failure"]) == uncut(theirs["text"])
