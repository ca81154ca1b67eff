"""`atelier` as scripts use it: exit codes that say what went wrong, and --json that is one document."""
import json
import os
import pathlib
import re
import subprocess

import boto3
import pytest

import jobs
from server import ATELIER

FAILED, USAGE, UNREACHABLE, DENIED, NOT_THERE, STOPPED = 1, 2, 3, 4, 5, 6


@pytest.fixture(scope="module")
def cli(atelier_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")

    def run(*arguments, code=0, data_dir=atelier_server.data_dir):
        done = subprocess.run([ATELIER, *map(str, arguments), "--data-dir", data_dir], text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=120, cwd=folder)
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done
    run("s3", "mb", "s3://terminal")
    return run


def script(folder, text):
    path = pathlib.Path(folder) / "job.py"
    path.write_text(text)
    return path


def train(cli, path, *more, instance="ml.cpu.1x", **options):
    return cli("train", "--script", path, "--name", "terminal", "--instance", instance,
               "--output", "s3://terminal/models", *more, **options)


def test_a_job_that_completes_is_0_and_its_json_one_document(cli, tmp_path):
    job = json.loads(train(cli, script(tmp_path, "print('hello')"), "--json").stdout)
    assert job["TrainingJobStatus"] == "Completed"
    shown = json.loads(cli("jobs", "show", job["TrainingJobName"], "--json").stdout)
    assert shown["TrainingJobArn"] == job["TrainingJobArn"]
    later = json.loads(train(cli, script(tmp_path, "print('later')"), "--json").stdout)
    newest = json.loads(cli("jobs", "list", "--limit", "2", "--json").stdout)
    assert [row["TrainingJobName"] for row in newest] == [later["TrainingJobName"], job["TrainingJobName"]]
    lines = json.loads(cli("jobs", "logs", job["TrainingJobName"], "--json").stdout)
    assert "hello" in [line["message"] for line in lines]
    assert "hello" in cli("jobs", "logs", job["TrainingJobName"]).stdout.splitlines()


def test_a_job_that_fails_is_1_and_says_why(cli, tmp_path):
    done = train(cli, script(tmp_path, "raise SystemExit('out of paint')"), code=FAILED)
    assert "out of paint" in done.stdout + done.stderr


def test_a_job_that_is_stopped_is_6(cli, tmp_path):
    detached = train(cli, script(tmp_path, "import time\nprint('up', flush=True)\ntime.sleep(600)"), "--detach")
    name = detached.stdout.split()[-1]
    assert json.loads(cli("jobs", "stop", name, "--json").stdout)["stopping"] is True
    cli("jobs", "logs", "-f", name, code=STOPPED)


def start_two(server, text):
    """A job of two instances, which `atelier train` does not make."""
    environment = server.environment()
    session = boto3.Session(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"],
                            region_name="us-west-2")
    name = jobs.name_of("two")
    session.client("s3", endpoint_url=server.url).put_object(
        Bucket="terminal", Key=f"{name}.tar.gz", Body=jobs.pack(text))
    session.client("sagemaker", endpoint_url=server.url).create_training_job(**jobs.request(
        name, f"s3://terminal/{name}.tar.gz", OutputDataConfig={"S3OutputPath": "s3://terminal/models"},
        ResourceConfig={"InstanceType": "ml.cpu.1x", "InstanceCount": 2, "VolumeSizeInGB": 1}))
    return name


def test_the_log_of_several_instances_has_each_line_with_its_instance(cli, atelier_server):
    name = start_two(atelier_server, """
        import os
        print("here is", os.environ["SM_CURRENT_HOST"])
        """)
    followed = cli("jobs", "logs", "-f", name).stdout
    assert "\x1b" not in followed
    for text in (followed, cli("jobs", "logs", name).stdout):
        assert {"algo-1  | here is algo-1", "algo-2  | here is algo-2"} <= set(text.splitlines())
    for options in ([], ["-f"]):
        second = cli("jobs", "logs", *options, "--instance", "algo-2", name).stdout.splitlines()
        assert "here is algo-2" in second and not any("algo-1" in line for line in second), second
    lines = json.loads(cli("jobs", "logs", name, "--json").stdout)
    streams = {line["message"]: line["stream"] for line in lines if line["message"].startswith("here is")}
    assert {message: re.sub("-[0-9]+$", "", stream) for message, stream in streams.items()} == {
        "here is algo-1": f"{name}/algo-1", "here is algo-2": f"{name}/algo-2"}
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    missing = cli("jobs", "logs", name, "--instance", "algo-3", code=NOT_THERE).stderr
    assert "no instance 'algo-3': it has algo-1 to algo-2" in missing


def test_the_last_lines_of_an_instance_that_fails_are_shown(cli, atelier_server):
    name = start_two(atelier_server, """
        import os, time
        if os.environ["SM_CURRENT_HOST"] == "algo-2":
            raise SystemExit("out of thread")
        time.sleep(600)
        """)
    assert "algo-2  | out of thread" in cli("jobs", "logs", "-f", name, code=FAILED).stdout.splitlines()


def test_what_is_not_there_is_5(cli, tmp_path):
    assert "no-such-job" in cli("jobs", "show", "no-such-job", code=NOT_THERE).stderr
    cli("jobs", "stop", "no-such-job", code=NOT_THERE)
    cli("jobs", "logs", "no-such-job", code=NOT_THERE)
    assert "no-such-bucket" in cli("s3", "ls", "s3://no-such-bucket", code=NOT_THERE).stderr
    cli("s3", "cp", "s3://terminal/no-such-key", tmp_path / "x", code=NOT_THERE)
    assert not (tmp_path / "x").exists()


def test_wrong_usage_and_input_are_2(cli, tmp_path):
    for arguments in (["jobs"], ["jobs", "show"], ["s3", "cp", "only-one"], ["train", "--no-such-flag"],
                      ["no-such-verb"]):
        assert subprocess.run([ATELIER, *arguments], capture_output=True, timeout=60).returncode == USAGE, arguments
    broken = tmp_path / "job.yaml"
    broken.write_text("name: [unclosed\n")
    assert "job.yaml" in cli("train", broken, code=USAGE).stderr
    done = train(cli, script(tmp_path, ""), instance="ml.no.such", code=USAGE)
    assert "ml.no.such" in done.stderr


def test_no_server_is_3_and_names_where_it_looked(cli, tmp_path):
    done = cli("jobs", "list", code=UNREACHABLE, data_dir=tmp_path / "nobody")
    assert str(tmp_path / "nobody") in done.stderr


def test_a_folder_whose_server_is_starting_is_waited_for_and_one_whose_server_ended_is_3(tmp_path):
    folder = tmp_path / "data"
    with subprocess.Popen([ATELIER, "serve", "--data-dir", folder, "--listen", "127.0.0.1:0"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            done = subprocess.run([ATELIER, "env", "--data-dir", folder], text=True, capture_output=True, timeout=60)
            assert done.returncode == 0 and "AWS_ENDPOINT_URL='http://127.0.0.1:" in done.stdout, done.stderr
        finally:
            server.terminate()
    for verb in (["env"], ["jobs", "list"], ["s3", "ls"]):
        done = subprocess.run([ATELIER, *verb, "--data-dir", folder], text=True, capture_output=True, timeout=60)
        assert done.returncode == UNREACHABLE and done.stdout == "", (verb, done.stdout, done.stderr)
        assert "nobody answers at http://127.0.0.1:" in done.stderr, done.stderr
        assert f"start one with: atelier serve --data-dir {folder}" in done.stderr, done.stderr


def test_a_word_that_is_no_verb_is_named_beside_those_that_are():
    for words, verb in ((["foo"], "serve"), (["jobs", "foo"], "results"), (["key", "foo", "--x"], "rotate")):
        done = subprocess.run([ATELIER, *words], text=True, capture_output=True, timeout=60)
        assert done.returncode == USAGE
        assert "'foo' is none of the verbs: " in done.stderr and verb in done.stderr, done.stderr
        assert "agent" not in done.stderr, done.stderr


def test_a_script_that_left_no_results_is_told_so(cli, tmp_path):
    name = json.loads(train(cli, script(tmp_path, "print(1)"), "--json").stdout)["TrainingJobName"]
    said = cli("jobs", "results", name, "--to", tmp_path / "results", code=NOT_THERE).stderr
    assert f"the job '{name}' left no results: there is no s3://terminal/models/{name}/output/output.tar.gz" in said
    assert "/opt/ml/output/data" in said and f"its model is s3://terminal/models/{name}/output/model.tar.gz" in said


def on_a_terminal(*arguments):
    """What a verb writes to a terminal."""
    ours, theirs = os.openpty()
    done = subprocess.Popen([ATELIER, *map(str, arguments)], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL)
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 65536):
            written += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    done.wait(60)
    return written.decode()


def test_what_a_job_says_does_not_reach_the_terminal_as_its_commands(cli, atelier_server, tmp_path):
    text = "print('\\x1b[2Jlogged\\twith a tab', flush=True)\nraise ValueError('\\x1b[2Jcleared \\x9b2J')"
    name = json.loads(train(cli, script(tmp_path, text), "--json", code=FAILED).stdout)["TrainingJobName"]
    for verb, shown in ((["show", name], "\\x1b[2Jcleared \\x9b2J"), (["logs", name], "\\x1b[2Jlogged\twith a tab"),
                        (["logs", "-f", name], "\\x1b[2Jlogged\twith a tab"), (["list"], name)):
        written = on_a_terminal("jobs", *verb, "--data-dir", atelier_server.data_dir)
        assert shown in written, (verb, written)
        assert "\x1b[2J" not in written.replace("\r\x1b[2K", "") and "\x9b" not in written, (verb, written)
    # Who reads it from a file or a pipe gets what was written.
    assert "\x1b[2Jlogged\twith a tab" in cli("jobs", "logs", name).stdout


def test_a_wrong_key_is_4(atelier_server, tmp_path):
    import shutil
    copy = tmp_path / "data"
    copy.mkdir()
    for name in os.listdir(atelier_server.data_dir):  # its keys and its endpoint, not its stores
        source = atelier_server.data_dir / name
        if source.is_file():
            shutil.copy(source, copy / name)
    secret = json.loads(atelier_server.run("env", "--json").stdout)["AWS_SECRET_ACCESS_KEY"]
    holders = [path for path in copy.iterdir() if secret in path.read_text(errors="replace")]
    assert holders
    for path in holders:
        path.write_text(path.read_text().replace(secret, secret[:-4] + "AAAA"))
    done = subprocess.run([ATELIER, "jobs", "list", "--data-dir", copy], text=True, capture_output=True, timeout=60)
    assert done.returncode == DENIED, done.stderr


def test_a_dry_run_prints_the_request_and_makes_no_job(cli, tmp_path):
    request = json.loads(train(cli, script(tmp_path, ""), "--dry-run").stdout)
    assert request["OutputDataConfig"]["S3OutputPath"] == "s3://terminal/models"
    assert request["TrainingJobName"] not in cli("jobs", "list", "--json").stdout


def help_of(*verb):
    done = subprocess.run([ATELIER, *verb, "--help"], text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def verbs_below(*verb):
    """The verbs that the help of `verb` lists, and those below them; and the one that it hides."""
    listed = re.search(r"^Subcommands:\n((?:  .*\n)+)", help_of(*verb), re.MULTILINE)
    names = re.findall(r"^  (\S+) ", listed[1], re.MULTILINE) if listed else []
    for name in names + ([] if verb else ["agent"]):
        yield (*verb, name)
        yield from verbs_below(*verb, name)


def test_every_verbs_help_has_its_usage_an_example_of_its_own_and_json_where_it_says_something():
    verbs = list(verbs_below())
    assert len(verbs) > 25 and ("s3", "ls") in verbs and ("key", "rotate") in verbs
    for verb in verbs:
        text, words = help_of(*verb), "atelier " + " ".join(verb)
        assert f"Usage: {words} " in text, text
        assert re.search(rf"^Example: .*{words} ", text, re.MULTILINE), text
        parent = "Subcommands:" in text
        assert parent or verb == ("agent",) or re.search(r"^  --json\s+\S", text, re.MULTILINE), text


def test_what_init_cache_and_serve_say_is_json_too(cli, tmp_path):
    metadata = tmp_path / "new" / "metadata.json"
    assert json.loads(cli("init", "--metadata", metadata, "--json").stdout) == {"wrote": [str(metadata)]}
    assert "is there already" in cli("init", "--metadata", metadata, "--json", code=FAILED).stderr
    assert json.loads(cli("init", "--json").stdout) == {"wrote": []}
    assert json.loads(cli("cache", "clear", "--json").stdout)["freed_bytes"] >= 0
    server = subprocess.Popen([ATELIER, "serve", "--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0", "--json"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    ready = json.loads(server.stdout.readline())
    server.terminate()
    server.wait(20)
    server.stdout.close()
    assert ready["ready"].startswith("http://127.0.0.1:") and ready["pid"] == server.pid
    assert ready["data_dir"] == str(tmp_path / "data")


def test_a_table_of_addresses_is_of_a_server_with_tls_alone(cli, tmp_path):
    done = cli("init", "--metadata", tmp_path / "metadata", "--endpoints", tmp_path / "endpoints.json", code=USAGE)
    assert "https" in done.stderr and "--tls-certificate" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_pictures_is_wrong_input(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    done = cli("dataset", "import", "imagefolder", tmp_path / "empty", tmp_path / "out", code=USAGE)
    assert "no pictures" in done.stderr and not (tmp_path / "out").exists()
