"""What S3 and R5 share: servers with 100,000 jobs, and a client that costs next to nothing."""
import hashlib
import hmac
import json
import os
import pathlib
import re
import socket
import sqlite3
import subprocess
import time

root = pathlib.Path(__file__).resolve().parent.parent
JOBS = 100_000
REGION = "us-west-2"
JOB = "describe-me"  # the first; the others are copy-1, copy-2, ...


def require_release():
    """A figure of a build without optimisation says nothing."""
    program = root / "bin/atelier"
    if not program.exists():
        raise RuntimeError("bin/atelier is not there: run `make`")
    cache = program.resolve().parent.parent / "CMakeCache.txt"
    kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", cache.read_text(), re.M)[1] if cache.exists() else "unknown"
    if kind != "Release":
        raise RuntimeError(f"bin/atelier is of a build of type '{kind}'; a Release build is what is measured: run `make`")


class Signer:
    """Requests as bytes, signed once: a signature holds for minutes, so the client costs next to nothing."""

    def __init__(self, host, access_key, secret):
        self.host, self.access_key = host, access_key
        self.date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        key = ("AWS4" + secret).encode()
        for part in (self.date[:8], REGION, "sagemaker", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self.key = key

    def request(self, operation, body):
        body = json.dumps(body).encode()
        headers = {"content-type": "application/x-amz-json-1.1", "host": self.host, "x-amz-date": self.date,
                   "x-amz-target": f"SageMaker.{operation}"}
        names = ";".join(headers)
        canonical = "\n".join(["POST", "/", "", *(f"{k}:{v}" for k, v in headers.items()), "", names,
                               hashlib.sha256(body).hexdigest()])
        scope = f"{self.date[:8]}/{REGION}/sagemaker/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", self.date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        signature = hmac.new(self.key, text.encode(), "sha256").hexdigest()
        headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, "
                                    f"SignedHeaders={names}, Signature={signature}")
        head = "POST / HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        return head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body


def connect(host):
    name, port = host.split(":")
    connection = socket.create_connection((name, int(port)), 30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_reply(connection, buffer=b""):
    """(body, bytes after it) of the next reply."""
    while (end := buffer.find(b"\r\n\r\n")) < 0:
        buffer += more(connection)
    head = buffer[:end].lower()
    if not head.startswith(b"http/1.1 200"):
        raise RuntimeError(f"refused: {buffer.splitlines()[0].decode()} {buffer[end + 4:][:300].decode()}")
    length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
    while len(buffer) < end + 4 + length:
        buffer += more(connection)
    return buffer[end + 4:end + 4 + length], buffer[end + 4 + length:]


def more(connection):
    piece = connection.recv(1 << 18)
    if not piece:
        raise RuntimeError("the server closed a connection")
    return piece


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid):
    return int(re.search(r"^VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1]) / 1024


def request_of(name):
    return {"TrainingJobName": name, "RoleArn": "arn:aws:iam::000000000000:role/bench",
            "AlgorithmSpecification": {"TrainingInputMode": "File", "TrainingImage":
                                       "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.3.0-cpu-py311"},
            "OutputDataConfig": {"S3OutputPath": "s3://bench/out"},
            "HyperParameters": {f"parameter-{n}": str(n) for n in range(10)},
            "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": {
                "S3DataType": "S3Prefix", "S3Uri": "s3://bench-no-such-bucket/train"}}}],
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60}}


class Ours:
    keeps_connections = True

    def __init__(self, folder):
        self.folder = folder
        self.start()
        environment = json.loads(subprocess.run(
            [root / "bin/atelier", "env", "--json", "--data-dir", folder], capture_output=True, check=True).stdout)
        self.keys = environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]

    def start(self):
        self.process = subprocess.Popen([root / "bin/atelier", "serve", "--data-dir", self.folder, "--listen", "127.0.0.1:0"],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("ready http://"):
            raise RuntimeError("atelier serve did not get ready")
        self.host = line.split()[1].removeprefix("http://")

    def signer(self):
        return Signer(self.host, *self.keys)

    def make_jobs(self):
        """One job through the API, until it has ended (it has no data), and copies of its rows."""
        connection = connect(self.host)
        connection.sendall(self.signer().request("CreateTrainingJob", request_of(JOB)))
        read_reply(connection)
        deadline = time.monotonic() + 60
        while True:
            connection.sendall(self.signer().request("DescribeTrainingJob", {"TrainingJobName": JOB}))
            if json.loads(read_reply(connection)[0])["TrainingJobStatus"] == "Failed":
                break
            if time.monotonic() > deadline:
                raise RuntimeError("the job did not end")
            time.sleep(0.1)
        stop(self.process)
        with sqlite3.connect(pathlib.Path(self.folder) / "jobs/jobs.db") as database:
            columns = [row[1] for row in database.execute("PRAGMA table_info(jobs)") if row[1] != "id"]
            changed = {"name": "'copy-' || n", "arn": f"replace(arn, '{JOB}', 'copy-' || n)", "created": "created - n * 1000",
                       "log_stream": "'copy-' || n || '/algo-1-7'"}
            values = ", ".join(changed.get(column, column) for column in columns)
            numbers = f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {JOBS - 1})"
            database.execute(f"{numbers} INSERT INTO jobs({', '.join(columns)}) SELECT {values} "
                             f"FROM numbers CROSS JOIN (SELECT * FROM jobs WHERE name = '{JOB}')")
            database.execute("INSERT INTO requests(job, body) SELECT j.id, r.body FROM jobs j, requests r WHERE j.id <> r.job")
            database.execute("INSERT INTO transitions SELECT j.id, t.n, t.status, t.message, t.start FROM jobs j, transitions t "
                             "WHERE j.id <> t.job")
        self.start()


class Moto:
    keeps_connections = False  # it answers "Connection: close"

    def __init__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.host = f"127.0.0.1:{probe.getsockname()[1]}"
        self.process = subprocess.Popen([root / ".env-bench/bin/moto_server", "-H", "127.0.0.1", "-p", self.host.split(":")[1]],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            try:
                connection = connect(self.host)
                break
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError("moto_server does not answer")
                time.sleep(0.05)
        connection.sendall(self.signer().request("CreateTrainingJob", request_of(JOB)))
        read_reply(connection)

    def signer(self):
        return Signer(self.host, "AKIDEXAMPLE", "secret")


def stop(process):
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
