"""What the holder of a job's keys can do, and of a principal's: real boto3 inside of a real job.

R2: an attack list, all refused (attacks.py).
"""
import io
import json
import os
import pathlib
import pwd
import socket
import tarfile
import threading
import time

import pytest

import jobs
from server import Server

HERE = pathlib.Path(__file__).parent
SLEEPER = """
    import json, os, urllib.request, boto3
    uri, ticket = os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"], os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
    got = json.load(urllib.request.urlopen(urllib.request.Request(uri, headers={"Authorization": ticket})))
    open("/opt/ml/model/secret", "w").write("the victim's")
    print("KEYS " + json.dumps([got["AccessKeyId"], got["SecretAccessKey"], got["Token"]]), flush=True)
    import time
    while not os.path.exists("/opt/ml/input/data/never"):
        time.sleep(0.2)
"""


SERVES = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
def answer():
    while True:
        with server.accept()[0] as one:
            one.sendall(b"the victim")
threading.Thread(target=answer, daemon=True).start()
with socket.create_connection(server.getsockname()) as control:
    assert control.recv(99) == b"the victim"
print("SERVES", server.getsockname()[1], flush=True)
"""
SQUATTER = """
import os, socket, threading, time, urllib.parse
port = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"]).port
def answer(server):
    while True:
        with server.accept()[0] as one:
            one.sendall(b"SQUATTED")
print("SQUATS", flush=True)
tries = {}
while not os.path.exists("/opt/ml/input/data/never"):
    for address in ("127.0.0.1", "0.0.0.0", "127.0.0.2", "::1", "::"):
        if "got" in tries.get(address, ""):
            continue
        server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            server.bind((address, port))
            server.listen()
            threading.Thread(target=answer, args=(server,), daemon=True).start()
            tries[address] = "got"
        except OSError as error:
            tries[address] = str(error)
    time.sleep(0.05)
"""

# What a job that talks to the server hears while it is down, and whether it comes back to the same address.
ASKS = """
import os, time, urllib.error, urllib.request
print("ASKS", flush=True)
away = False
while not os.path.exists("/opt/ml/input/data/never"):
    try:
        urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"], timeout=5)
    except urllib.error.HTTPError:
        if away:
            print("back", flush=True)
            away = False
    except Exception as error:
        if not away:
            print("away", repr(error), flush=True)
        away = True
    time.sleep(0.05)
"""


def on_loopback():
    """A TCP service of this process, and a UDP socket with the same number."""
    service = socket.create_server(("127.0.0.1", 0))

    def answer():
        try:
            while True:
                with service.accept()[0] as one:
                    one.sendall(b"the host")
        except OSError:
            return
    threading.Thread(target=answer, daemon=True).start()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(service.getsockname())
    return service, datagrams


def with_boto3(script, target):
    """A source folder with the boto3 of this process and of its models the few that the script uses."""
    import boto3
    import botocore
    site = pathlib.Path(boto3.__file__).parents[1]
    models = {"s3", "sts", "sagemaker", "logs", "iam"}
    buffer = io.BytesIO()

    def wanted(member):
        path = pathlib.PurePosixPath(member.name)
        if "__pycache__" in path.parts or path.suffix in (".so", ".gz.rst"):
            return None
        if path.parts[:2] == ("botocore", "data") and len(path.parts) > 3 and path.parts[2] not in models:
            return None
        return member if not (path.parts[:2] == ("boto3", "data") and len(path.parts) > 3 and
                              path.parts[2] not in models) else None
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for name in ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six.py"):
            archive.add(site / name, name, filter=wanted)
        for name, content in (("train.py", script), ("target.json", json.dumps(target).encode())):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert pathlib.Path(botocore.__file__).is_relative_to(site)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def clients(atelier_server):
    import boto3
    session = boto3.session.Session()
    made = {name: session.client(name) for name in ("sagemaker", "logs", "s3")}
    for bucket in ("trust-data", "trust-out", "trust-code"):
        made["s3"].create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    for key in ("train/a", "secret/a"):
        made["s3"].put_object(Bucket="trust-data", Key=key, Body=b"bytes")
    return made


@pytest.fixture(scope="module")
def submit(clients):
    def run(base, source, **changes):
        name = jobs.name_of(base)
        clients["s3"].put_object(Bucket="trust-code", Key=f"{name}/sourcedir.tar.gz", Body=source)
        body = jobs.request(name, f"s3://trust-code/{name}/sourcedir.tar.gz")
        body["OutputDataConfig"] = {"S3OutputPath": "s3://trust-out/trust"}
        body["CheckpointConfig"] = {"S3Uri": f"s3://trust-out/ckpt/{name}"}
        body["InputDataConfig"] = [{"ChannelName": "train", "DataSource": {"S3DataSource": {
            "S3DataType": "S3Prefix", "S3Uri": "s3://trust-data/train/"}}}]
        body["HyperParameters"] |= changes.pop("HyperParameters", {})
        clients["sagemaker"].create_training_job(**{**body, **changes})
        return name
    return run


def lines_of(clients, name):
    streams = clients["logs"].describe_log_streams(logGroupName="/aws/sagemaker/TrainingJobs",
                                                   logStreamNamePrefix=name)["logStreams"]
    if not streams:
        return []
    events = clients["logs"].get_log_events(logGroupName="/aws/sagemaker/TrainingJobs",
                                            logStreamName=streams[0]["logStreamName"], startFromHead=True)["events"]
    return [event["message"] for event in events]


def wait_for_line(clients, name, start, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = [line for line in lines_of(clients, name) if line.startswith(start)]
        if found:
            return found[0]
        job = clients["sagemaker"].describe_training_job(TrainingJobName=name)
        assert job["TrainingJobStatus"] == "InProgress", (job.get("FailureReason"), lines_of(clients, name)[-20:])
        time.sleep(0.2)
    raise AssertionError(f"no line {start!r} in {lines_of(clients, name)}")


def finish(clients, name):
    deadline = time.monotonic() + 240
    while True:
        job = clients["sagemaker"].describe_training_job(TrainingJobName=name)
        if job["TrainingJobStatus"] in ("Completed", "Failed", "Stopped"):
            return job
        assert time.monotonic() < deadline, job
        time.sleep(0.3)


def process_of(job):
    """The process of a job's program on this host, by the name in its environment."""
    for process in pathlib.Path("/proc").iterdir():
        try:
            if f"TRAINING_JOB_NAME={job}".encode() in (process / "environ").read_bytes().split(b"\0"):
                if (process / "comm").read_text().startswith("python"):
                    return int(process.name)
        except OSError:
            continue
    raise AssertionError(f"no process of {job}")


@pytest.fixture(scope="module")
def attacked(atelier_server, clients, submit):
    ended = submit("ended", jobs.pack(SLEEPER.split("import time")[0].replace(", boto3", "")))
    keys = json.loads(wait_for_line_or_end(clients, ended, "KEYS ").removeprefix("KEYS "))
    finish(clients, ended)
    victim = submit("victim", jobs.pack(SERVES + SLEEPER.replace(", boto3", "").replace("\n    ", "\n")))
    wait_for_line(clients, victim, "KEYS ")
    victim_port = int(wait_for_line(clients, victim, "SERVES ").split()[1])
    clients["s3"].put_object(Bucket="trust-out", Key=f"ckpt/{victim}/1", Body=b"the victim's")
    clients["s3"].put_object(Bucket="trust-out", Key=f"trust/{victim}/output/secret", Body=b"the victim's")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0atelier-{victim}")
    listener.listen()
    service, datagrams = on_loopback()
    target = {"own_network": has_own_network(clients, victim), "victim": victim, "victim_pid": process_of(victim), "server_pid": atelier_server.process.pid,
              "data_dir": str(atelier_server.data_dir), "socket": f"atelier-{victim}", "ended": keys,
              "victim_port": victim_port, "host_port": service.getsockname()[1],
              "role": jobs.ROLE, "image": jobs.IMAGE}
    attacker = submit("attacker", with_boto3((HERE / "attacks.py").read_bytes(), target))
    try:
        done = finish(clients, attacker)
        with socket.create_connection(service.getsockname()) as control:
            assert control.recv(9) == b"the host"
        datagrams.setblocking(False)
        with pytest.raises(BlockingIOError):
            datagrams.recv(99)
        yield done, lines_of(clients, attacker), victim
    finally:
        for each in (listener, service, datagrams):
            each.close()
        clients["sagemaker"].stop_training_job(TrainingJobName=victim)
        finish(clients, victim)


def has_own_network(clients, name):
    """False on a host that gives jobs none; they carry a warning then, and one reaches the other's loopback."""
    job = clients["sagemaker"].describe_training_job(TrainingJobName=name)
    return not any("shares this machine's network" in each["StatusMessage"] for each in job["SecondaryStatusTransitions"])


def wait_for_line_or_end(clients, name, start):
    finish(clients, name)
    return next(line for line in lines_of(clients, name) if line.startswith(start))


def test_every_attack_of_a_job_is_refused(attacked, clients):
    job, lines, victim = attacked
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines[-30:])
    assert "attacks done" in lines
    tries = [json.loads(line) for line in lines if line.startswith('{"attack"')]
    through = [each for each in tries if not each["got"].startswith(("refused", "worked"))]
    assert not through, through
    controls = [each for each in tries if each["attack"].startswith("control")]
    own = has_own_network(clients, victim)
    assert len(controls) == (9 if own else 8) and all(each["got"] == "worked" for each in controls), controls
    assert len(tries) - len(controls) >= (100 if own else 80)
    assert not own or len([each for each in tries if each["attack"].startswith("loopback of the victim")]) >= 10


def test_the_victim_is_as_it_was(attacked, clients):
    _, _, victim = attacked
    assert clients["sagemaker"].describe_training_job(TrainingJobName=victim)["TrainingJobStatus"] == "InProgress"
    body = clients["s3"].get_object(Bucket="trust-out", Key=f"trust/{victim}/output/secret")["Body"].read()
    assert body == b"the victim's"
    assert clients["s3"].get_object(Bucket="trust-data", Key="train/a")["Body"].read() == b"bytes"


def test_no_secret_is_in_describe_logs_records_or_command_lines(attacked, atelier_server, clients):
    _, _, victim = attacked
    spec = json.loads((atelier_server.data_dir / "jobs" / victim / "spec.json").read_text())
    secrets = [spec["s3"]["secret_key"], spec["s3"]["session_token"], spec["credentials_ticket"],
               (atelier_server.data_dir / "sessions.secret").read_text().strip(),
               json.loads(atelier_server.run("env", "--json").stdout)["AWS_SECRET_ACCESS_KEY"]]
    told = json.dumps(clients["sagemaker"].describe_training_job(TrainingJobName=victim), default=str)
    places = {"describe": told, "the server's log": atelier_server.log.read_text(),
              "the job's log": "\n".join(line for line in lines_of(clients, victim) if not line.startswith("KEYS")),
              "the agent's log": (atelier_server.data_dir / "jobs" / victim / "agent.out").read_text(),
              "the record of calls": "".join(path.read_text() for path in (atelier_server.data_dir / "audit").iterdir())}
    assert victim in places["the record of calls"] and victim in places["describe"]
    for process in pathlib.Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                places[f"ps {process.name}"] = (process / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
    for place, text in places.items():
        assert not [secret for secret in secrets if secret in text], place


def test_no_job_gets_the_servers_port_while_it_is_down(tmp_path):
    import boto3
    server = Server(tmp_path / "data").start()
    try:
        ours = server.environment()
        session = boto3.session.Session(ours["AWS_ACCESS_KEY_ID"], ours["AWS_SECRET_ACCESS_KEY"],
                                        region_name="us-west-2")

        def client(name):
            return session.client(name, endpoint_url=server.url)
        for bucket in ("trust-code", "trust-out"):
            client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        names = []
        for base, script in (("squatter", SQUATTER), ("asks", ASKS)):
            name = jobs.name_of(base)
            client("s3").put_object(Bucket="trust-code", Key=f"{name}/s.tar.gz", Body=jobs.pack(script))
            client("sagemaker").create_training_job(**jobs.request(name, f"s3://trust-code/{name}/s.tar.gz") | {
                "OutputDataConfig": {"S3OutputPath": "s3://trust-out/squat"}})
            names.append(name)
        made = {name: client(name) for name in ("sagemaker", "logs")}
        wait_for_line(made, names[0], "SQUATS")
        wait_for_line(made, names[1], "ASKS")
        if not has_own_network(made, names[0]):
            pytest.skip("this host gives jobs no network of their own")
        server.kill()
        port = int(server.url.rsplit(":", 1)[1])
        down = time.monotonic()
        while time.monotonic() < down + 3:
            for address in ("127.0.0.1", "127.0.0.2"):
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection((address, port), 2)
            time.sleep(0.1)
        with socket.socket() as control:  # who is on the host's network could have had it
            control.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            control.bind(("127.0.0.1", port))
        server.restart()
        wait_for_line(made, names[1], "back")
        lines = lines_of(made, names[1])
        assert any(line.startswith("away") for line in lines), lines
        assert not [line for line in lines if "SQUATTED" in line], lines
        for name in names:
            made["sagemaker"].stop_training_job(TrainingJobName=name)
            finish(made, name)
    finally:
        server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="without root all jobs are one user of the host")
def test_programs_are_users_without_a_name_each_its_own(attacked, submit, clients):
    _, _, victim = attacked
    other = submit("neighbour", jobs.pack(SLEEPER.replace(", boto3", "")))
    try:
        wait_for_line(clients, other, "KEYS ")
        users = [os.stat(f"/proc/{process_of(job)}").st_uid for job in (victim, other)]
    finally:
        clients["sagemaker"].stop_training_job(TrainingJobName=other)
        finish(clients, other)
    assert users[0] != users[1] and min(users) >= 2_000_000_000, users
    known = {user.pw_uid for user in pwd.getpwall()}
    assert not known & set(users)


READER = {"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": ["sagemaker:*", "logs:*"], "Resource": "*"},
    {"Effect": "Allow", "Action": "iam:PassRole", "Resource": jobs.ROLE},
    {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:aws:s3:::trust-code/*"},
    {"Effect": "Allow", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::trust-out/*"}]}


def person(server, tmp_path, name, policy):
    import boto3
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(policy))
    key = json.loads(server.run("key", "create", "--name", name, "--policy", str(path), "--json").stdout)
    return boto3.session.Session(key["access_key"], key["secret_key"]), key


def code_of(call):
    from botocore.exceptions import ClientError
    with pytest.raises(ClientError) as error:
        call()
    return error.value.response["Error"]["Code"]


def test_a_persons_key_does_what_its_policy_says_until_it_is_revoked(atelier_server, clients, tmp_path):
    session, key = person(atelier_server, tmp_path, "reader", READER)
    s3, sagemaker = session.client("s3"), session.client("sagemaker")
    assert session.client("sts").get_caller_identity()["Arn"].endswith(":user/reader")
    s3.put_object(Bucket="trust-code", Key="reader/x", Body=b"x")
    assert sagemaker.list_training_jobs()["TrainingJobSummaries"] is not None
    assert code_of(lambda: s3.get_object(Bucket="trust-data", Key="train/a")) == "AccessDenied"
    assert code_of(lambda: session.client("iam").get_role(RoleName="r")) == "AccessDenied"
    turned = json.loads(atelier_server.run("key", "rotate", "--name", "reader", "--json").stdout)
    assert code_of(lambda: s3.put_object(Bucket="trust-code", Key="reader/x", Body=b"x")) == "InvalidAccessKeyId"
    import boto3
    s3 = boto3.session.Session(turned["access_key"], turned["secret_key"]).client("s3")
    s3.put_object(Bucket="trust-code", Key="reader/x", Body=b"x")
    listed = json.loads(atelier_server.run("key", "list", "--json").stdout)
    assert [each["name"] for each in listed] == ["admin", "reader"] and listed[0]["everything"]
    assert turned["secret_key"] not in json.dumps(listed)
    atelier_server.run("key", "revoke", "--name", "reader")
    assert code_of(lambda: s3.put_object(Bucket="trust-code", Key="reader/x", Body=b"x")) == "InvalidAccessKeyId"
    assert atelier_server.run("key", "revoke", "--name", "admin", check=False).returncode != 0
    denied = [json.loads(line) for line in
              atelier_server.run("audit", "--refused", "--principal", "user/reader", "--json").stdout.splitlines()]
    assert any(each["action"] == "s3:GetObject" and each["resource"] == "arn:aws:s3:::trust-data/train/a" and
               each["error"] == "AccessDenied" for each in denied), denied
    told = "".join(path.read_text() for path in (atelier_server.data_dir / "audit").iterdir())
    assert key["secret_key"] not in told and turned["secret_key"] not in told


def test_a_persons_policy_is_changed_at_once_and_the_keys_stay(atelier_server, clients, tmp_path):
    session, key = person(atelier_server, tmp_path, "changed", READER)
    s3 = session.client("s3")
    s3.put_object(Bucket="trust-code", Key="changed/x", Body=b"x")
    less = tmp_path / "less.json"
    less.write_text(json.dumps({"Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}}))

    def change(name, *what, code=0):
        done = atelier_server.run("key", "change", "--name", name, *what, check=False)
        assert done.returncode == code, done.stderr
        return done
    assert "1 key of 'changed'" in change("changed", "--policy", str(less)).stdout
    assert code_of(lambda: s3.put_object(Bucket="trust-code", Key="changed/x", Body=b"x")) == "AccessDenied"
    assert s3.get_object(Bucket="trust-code", Key="changed/x")["Body"].read() == b"x"
    listed = {each["name"]: each for each in json.loads(atelier_server.run("key", "list", "--json").stdout)}
    assert listed["changed"]["access_key"] == key["access_key"]
    assert listed["changed"]["policy"]["Statement"]["Action"] == "s3:GetObject"
    # A second key of hers (the old one counts on for a while) has the same policy.
    atelier_server.run("key", "rotate", "--name", "changed", "--keep-old", "60")
    assert json.loads(change("changed", "--everything", "--json").stdout) == {"name": "changed", "changed": 2}
    s3.put_object(Bucket="trust-code", Key="changed/x", Body=b"x")
    atelier_server.run("key", "revoke", "--name", "changed")
    # Nobody is found by a name that is not there, no policy is half taken, and somebody may always do everything.
    assert "nobody is called 'nobody'" in change("nobody", "--everything", code=5).stderr
    broken = tmp_path / "broken.json"
    broken.write_text('{"Statement": {"Effect": "Allow", "Action": "s3:*"}}')
    assert "broken.json" in change("admin", "--policy", str(broken), code=2).stderr
    assert "one has to remain" in change("admin", "--policy", str(less), code=1).stderr
    change("admin", code=2)
    assert clients["s3"].list_buckets()["Buckets"]


def test_a_job_reads_nothing_that_its_creator_may_not(atelier_server, clients, tmp_path):
    session, _ = person(atelier_server, tmp_path, "nosy", READER)
    name = jobs.name_of("nosy")
    session.client("s3").put_object(Bucket="trust-code", Key=f"{name}/sourcedir.tar.gz", Body=jobs.pack("print(1)"))
    body = jobs.request(name, f"s3://trust-code/{name}/sourcedir.tar.gz")
    body["OutputDataConfig"] = {"S3OutputPath": "s3://trust-out/nosy"}
    body["InputDataConfig"] = [{"ChannelName": "train", "DataSource": {"S3DataSource": {
        "S3DataType": "S3Prefix", "S3Uri": "s3://trust-data/secret/"}}}]
    session.client("sagemaker").create_training_job(**body)
    job = finish(clients, name)
    assert job["TrainingJobStatus"] == "Failed"
    assert "is not authorized to perform: s3:ListBucket" in job["FailureReason"], job["FailureReason"]
    atelier_server.run("key", "revoke", "--name", "nosy")


def test_a_role_is_the_one_that_was_passed_and_ends_with_who_passed_it(atelier_server, clients, tmp_path):
    import boto3
    allow = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::trust-data/*"}
    roles = atelier_server.data_dir / "roles.json"
    roles.write_text(json.dumps({"roles": {"boss": {"Statement": allow}, "team-p/loader": {"Statement": allow}}}))
    session, _ = person(atelier_server, tmp_path, "passer", {"Version": "2012-10-17", "Statement": [
        *[each for each in READER["Statement"] if each["Action"] != "iam:PassRole"],
        {"Effect": "Allow", "Action": "iam:PassRole", "Resource": "arn:aws:iam::000000000000:role/team-p*"}]})

    def start(role):
        name = jobs.name_of("passed")
        session.client("s3").put_object(Bucket="trust-code", Key=f"{name}/s.tar.gz",
                                        Body=jobs.pack(SLEEPER.replace(", boto3", "")))
        body = {**jobs.request(name, f"s3://trust-code/{name}/s.tar.gz"),
                "OutputDataConfig": {"S3OutputPath": "s3://trust-out/passed"}, "RoleArn": role}
        session.client("sagemaker").create_training_job(**body)
        keys = json.loads(wait_for_line(clients, name, "KEYS ").removeprefix("KEYS "))
        return name, boto3.session.Session(*keys).client("s3")

    try:
        refused = jobs.request("never", "s3://trust-code/never.tar.gz") | {"RoleArn": "arn:aws:iam::000000000000:role/boss"}
        assert code_of(lambda: session.client("sagemaker").create_training_job(**refused)) == "AccessDeniedException"
        name, theirs = start("arn:aws:iam::000000000000:role/team-p/boss")
        assert code_of(lambda: theirs.get_object(Bucket="trust-data", Key="secret/a")) == "AccessDenied"
        clients["sagemaker"].stop_training_job(TrainingJobName=name)
        name, theirs = start("arn:aws:iam::000000000000:role/team-p/loader")
        assert theirs.get_object(Bucket="trust-data", Key="secret/a")["Body"].read() == b"bytes"
        atelier_server.run("key", "revoke", "--name", "passer")
        assert code_of(lambda: theirs.get_object(Bucket="trust-data", Key="secret/a")) == "AccessDenied"
        clients["sagemaker"].stop_training_job(TrainingJobName=name)
    finally:
        roles.unlink()


def test_who_may_list_but_not_read_gets_nothing_from_the_cache(atelier_server, clients, tmp_path):
    def start(session, base):
        name = jobs.name_of(base)
        clients["s3"].put_object(Bucket="trust-code", Key=f"{name}/s.tar.gz", Body=jobs.pack(
            "print(open('/opt/ml/input/data/train/a').read())"))
        body = {**jobs.request(name, f"s3://trust-code/{name}/s.tar.gz"),
                "OutputDataConfig": {"S3OutputPath": "s3://trust-out/cached"},
                "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": {
                    "S3DataType": "S3Prefix", "S3Uri": "s3://trust-data/secret/"}}}]}
        session.client("sagemaker").create_training_job(**body)
        return finish(clients, name), lines_of(clients, name)

    import boto3
    for _ in range(2):
        job, lines = start(boto3.session.Session(), "cached")
        assert job["TrainingJobStatus"] == "Completed", job
    assert any("were on this host already" in line for line in lines), lines
    session, _ = person(atelier_server, tmp_path, "lister", {"Version": "2012-10-17", "Statement": [
        *READER["Statement"], {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::trust-data"}]})
    job, lines = start(session, "listed")
    assert job["TrainingJobStatus"] == "Failed", lines
    assert "is not authorized to perform: s3:GetObject" in job["FailureReason"], job["FailureReason"]
    atelier_server.run("key", "revoke", "--name", "lister")


def test_strangers_are_recorded_beside_the_others(atelier_server):
    import boto3
    stranger = boto3.session.Session("AKIANOBODYKNOWSME000", "x").client("s3")
    for _ in range(3):
        assert code_of(lambda: stranger.list_buckets()) == "InvalidAccessKeyId"
    told = [json.loads(line) for line in atelier_server.run("audit", "--unknown", "--json").stdout.splitlines()]
    assert told and all("principal" not in each for each in told), told
    known = [json.loads(line) for line in atelier_server.run("audit", "--json", "--last", "5000").stdout.splitlines()]
    assert known and all(each.get("principal") for each in known)
    # A call of something that is not served has none.
    assert any(each.get("action") == "atelier:ExchangeTicket" for each in known)


def test_keys_of_a_job_go_on_when_the_server_is_killed(tmp_path):
    import boto3
    from server import Server
    server = Server(tmp_path / "data").start()
    try:
        environment = server.environment()
        session = boto3.session.Session(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"],
                                        region_name="us-west-2")
        made = {each: session.client(each, endpoint_url=server.url) for each in ("s3", "sagemaker", "logs")}
        for bucket in ("trust-code", "trust-out"):
            made["s3"].create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        name = jobs.name_of("survivor")
        made["s3"].put_object(Bucket="trust-code", Key="s.tar.gz", Body=jobs.pack(SLEEPER.replace(", boto3", "").replace(
            "not os.path.exists(\"/opt/ml/input/data/never\")", "True")))
        made["sagemaker"].create_training_job(**{**jobs.request(name, "s3://trust-code/s.tar.gz"),
                                                 "OutputDataConfig": {"S3OutputPath": "s3://trust-out"}})
        keys = json.loads(wait_for_line(made, name, "KEYS ").removeprefix("KEYS "))
        theirs = boto3.session.Session(*keys, region_name="us-west-2").client("s3", endpoint_url=server.url)
        theirs.put_object(Bucket="trust-out", Key=f"{name}/output/a", Body=b"x")
        server.kill()
        server.restart()
        theirs.put_object(Bucket="trust-out", Key=f"{name}/output/b", Body=b"x")
        made["sagemaker"].stop_training_job(TrainingJobName=name)
        assert finish(made, name)["TrainingJobStatus"] == "Stopped"
        assert code_of(lambda: theirs.put_object(Bucket="trust-out", Key=f"{name}/output/c", Body=b"x")) == "ExpiredToken"
    finally:
        server.stop()
