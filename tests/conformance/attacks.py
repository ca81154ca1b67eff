"""The script of a job that tries to leave its place: one line a try, {"attack": NAME, "got": WORDS}.

Run by test_trust.py. `got` begins with "refused" where the attack failed, with "SUCCEEDED" where it did not, and
with "worked" for what a job may do: without those a broken client would look like safety.
"""
import base64
import ctypes
import errno
import json
import os
import signal
import re
import socket
import urllib.error
import urllib.parse
import urllib.request

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.credentials
import botocore.exceptions

ARGUMENTS = json.load(open("/opt/ml/code/target.json"))
JOB, VICTIM, DATA_DIR = os.environ["TRAINING_JOB_NAME"], ARGUMENTS["victim"], ARGUMENTS["data_dir"]
ENDPOINT = os.environ["AWS_ENDPOINT_URL"]
REFUSALS = {"AccessDenied", "AccessDeniedException", "403", "InvalidToken", "InvalidAccessKeyId", "ExpiredToken",
            "SignatureDoesNotMatch", "UnrecognizedClientException", "InvalidSignatureException"}
session = boto3.session.Session()
s3 = session.client("s3", endpoint_url=ENDPOINT)


def report(name, got):
    print(json.dumps({"attack": name, "got": got}), flush=True)


def attempt(name, call):
    """Success is a failure of the server; anything but a clear refusal is one too."""
    try:
        got = f"SUCCEEDED {str(call())[:200]}"
    except botocore.exceptions.ClientError as error:
        code = error.response["Error"]["Code"]
        got = f"refused {code}" if code in REFUSALS else f"SUCCEEDED? {code} {error}"
    except urllib.error.HTTPError as error:
        words = error.read().decode()
        code = (re.findall("<Code>([^<]*)|\"code\":\"([^\"]*)", words) or [("", "")])[0]
        got = f"refused {max(code)}" if max(code) in REFUSALS else f"SUCCEEDED? HTTP {error.code} {words}"
    except (PermissionError, FileNotFoundError, ProcessLookupError, ConnectionRefusedError) as error:
        got = f"refused {type(error).__name__}"
    except OSError as error:
        got = f"refused {error}" if error.errno in (errno.ENOSYS, errno.EROFS) else f"SUCCEEDED? {error}"
    report(name, got)


def control(name, call):
    try:
        call()
        report(name, "worked")
    except Exception as error:  # noqa: BLE001: whatever it is, the test has to see it
        report(name, f"FAILED {type(error).__name__} {error}")


def raw(method, path, credentials=None, body=b""):
    """A request whose path goes over the wire as it is, signed as it is."""
    url = ENDPOINT + path
    request = botocore.awsrequest.AWSRequest(method, url, data=body)
    botocore.auth.S3SigV4Auth(credentials or session.get_credentials().get_frozen_credentials(), "s3",
                              "us-west-2").add_auth(request)
    return urllib.request.urlopen(urllib.request.Request(url, body or None, dict(request.headers), method=method)).read()


def objects():
    own_out = f"trust/{JOB}/output"
    control("control: list the channel", lambda: s3.list_objects_v2(Bucket="trust-data", Prefix="train/"))
    control("control: read the channel", lambda: s3.get_object(Bucket="trust-data", Key="train/a")["Body"].read())
    control("control: write the output", lambda: s3.put_object(Bucket="trust-out", Key=f"{own_out}/note", Body=b"x"))
    control("control: checkpoints", lambda: (
        s3.put_object(Bucket="trust-out", Key=f"ckpt/{JOB}/1", Body=b"x"),
        s3.get_object(Bucket="trust-out", Key=f"ckpt/{JOB}/1"), s3.delete_object(Bucket="trust-out", Key=f"ckpt/{JOB}/1")))
    victim_model, secret = f"trust/{VICTIM}/output/secret", "train/../secret/a"
    attempt("list all buckets", s3.list_buckets)
    attempt("list a whole bucket", lambda: s3.list_objects_v2(Bucket="trust-data"))
    attempt("list beside the channel", lambda: s3.list_objects_v2(Bucket="trust-data", Prefix="secret/"))
    attempt("list above the channel", lambda: s3.list_objects_v2(Bucket="trust-data", Prefix="train"))
    attempt("read beside the channel", lambda: s3.get_object(Bucket="trust-data", Key="secret/a"))
    attempt("head beside the channel", lambda: s3.head_object(Bucket="trust-data", Key="secret/a"))
    attempt("write into the channel", lambda: s3.put_object(Bucket="trust-data", Key="train/b", Body=b"x"))
    attempt("remove from the channel", lambda: s3.delete_object(Bucket="trust-data", Key="train/a"))
    attempt("tag an object of the channel", lambda: s3.put_object_tagging(
        Bucket="trust-data", Key="train/a", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]}))
    attempt("read another job's output", lambda: s3.get_object(Bucket="trust-out", Key=victim_model))
    attempt("write another job's output", lambda: s3.put_object(Bucket="trust-out", Key=victim_model, Body=b"x"))
    attempt("upload parts to another job's output", lambda: s3.create_multipart_upload(
        Bucket="trust-out", Key=victim_model))
    attempt("copy another job's output", lambda: s3.copy_object(
        Bucket="trust-out", Key=f"{own_out}/stolen", CopySource={"Bucket": "trust-out", "Key": victim_model}))
    attempt("another job's checkpoints", lambda: s3.get_object(Bucket="trust-out", Key=f"ckpt/{VICTIM}/1"))
    attempt("another job's source", lambda: s3.get_object(Bucket="trust-code", Key=f"{VICTIM}/sourcedir.tar.gz"))
    attempt("a name that begins like one's own", lambda: s3.put_object(
        Bucket="trust-out", Key=f"trust/{JOB}2/output/x", Body=b"x"))
    attempt("make a bucket", lambda: s3.create_bucket(
        Bucket="trust-mine", CreateBucketConfiguration={"LocationConstraint": "us-west-2"}))
    attempt("remove a bucket", lambda: s3.delete_bucket(Bucket="trust-data"))
    removed = s3.delete_objects(Bucket="trust-data", Delete={"Objects": [{"Key": "train/a"}, {"Key": "secret/a"}]})
    report("remove many", "refused AccessDenied" if not removed.get("Deleted") and
           {each["Code"] for each in removed["Errors"]} == {"AccessDenied"} else f"SUCCEEDED {removed}")
    for path in ("/trust-data/train/../secret/a", "/trust-data/train/..%2Fsecret/a", "/trust-data/train%2F..%2Fsecret%2Fa",
                 "/trust-data//train/a", "/trust-data/%2e%2e/trust-data/secret/a", "/trust-data/secret/a?prefix=train/",
                 "/trust-data?list-type=2&prefix=&prefix=train/", "/trust-data?prefix=secret/&prefix=train/"):
        # A key with dots below the channel is a key of its own: it may be asked for, and is not there.
        def ask(path=path):
            try:
                return raw("GET", path)
            except urllib.error.HTTPError as error:
                if error.code == 404 and path.startswith("/trust-data/train"):
                    raise PermissionError(path) from error
                raise
        attempt(f"path {path}", ask)
    beside = raw("GET", "/trust-data?list-type=2&prefix=train%2F&continuation-token=" + urllib.parse.quote(
        base64.b64encode(b"secret/").decode(), safe=""))
    report("a page that begins beside the prefix", "refused no key" if b"<Key>secret" not in beside else f"SUCCEEDED {beside}")
    attempt("key with dots", lambda: s3.get_object(Bucket="trust-data", Key="x/" + secret))


def presigned():
    def get(key, **arguments):
        url = session.client("s3", endpoint_url=ENDPOINT, config=botocore.config.Config(**arguments)).generate_presigned_url(
            "get_object", {"Bucket": "trust-data", "Key": key}, 60)
        return urllib.request.urlopen(url).read()
    for version in ("s3v4", "s3"):
        control(f"control: presigned {version}", lambda v=version: get("train/a", signature_version=v))
        attempt(f"presigned {version} beside the channel", lambda v=version: get("secret/a", signature_version=v))


def other_services():
    def client(name):
        return session.client(name, endpoint_url=ENDPOINT)
    sagemaker, logs = client("sagemaker"), client("logs")
    control("control: who am I", lambda: client("sts").get_caller_identity()["Arn"].endswith(f"/{JOB}") or 1 / 0)
    attempt("list jobs", sagemaker.list_training_jobs)
    attempt("describe another job", lambda: sagemaker.describe_training_job(TrainingJobName=VICTIM))
    attempt("describe itself", lambda: sagemaker.describe_training_job(TrainingJobName=JOB))
    attempt("stop another job", lambda: sagemaker.stop_training_job(TrainingJobName=VICTIM))
    attempt("read another job's log", lambda: logs.describe_log_streams(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=VICTIM))
    attempt("ask for a role", lambda: client("iam").get_role(RoleName="atelier"))
    attempt("make a job", lambda: sagemaker.create_training_job(
        TrainingJobName=f"{JOB}-child", RoleArn=ARGUMENTS["role"],
        AlgorithmSpecification={"TrainingImage": ARGUMENTS["image"], "TrainingInputMode": "File"},
        OutputDataConfig={"S3OutputPath": "s3://trust-out/trust"},
        ResourceConfig={"InstanceType": "ml.cpu.1x", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 60}))


def tokens():
    uri, ticket = os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"], os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN"]

    def fetch(authorization, url=uri):
        headers = {"Authorization": authorization} if authorization else {}
        return json.load(urllib.request.urlopen(urllib.request.Request(url, headers=headers)))

    def forged(text):
        """The same seal over another job's name."""
        blob = base64.b64decode(text)
        return base64.b64encode(blob[:32] + blob[32:].replace(JOB.encode(), VICTIM.encode())).decode()
    control("control: fetch keys", lambda: fetch(ticket)["AccessKeyId"])
    attempt("keys without a ticket", lambda: fetch(""))
    attempt("keys of another job", lambda: fetch(forged(ticket)))
    attempt("keys with a changed ticket", lambda: fetch(ticket[:-8] + "AAAAAAA="))
    attempt("keys with a session's token", lambda: fetch(session.get_credentials().get_frozen_credentials().token))
    key = session.get_credentials().get_frozen_credentials()
    made = botocore.credentials.Credentials
    for name, token in (("another job's token", forged(key.token)), ("a ticket as a token", ticket), ("no token", None)):
        attempt(name, lambda token=token: raw("GET", "/trust-data/train/a", made(key.access_key, key.secret_key, token)))
    longer = base64.b64decode(key.token)
    longer = base64.b64encode(longer[:-13] + b"9" * 13).decode()
    attempt("a token with a later end", lambda: raw("GET", "/trust-data/train/a", made(key.access_key, key.secret_key, longer)))
    attempt("keys that were handed out for an ended job", lambda: raw(
        "GET", "/trust-data/train/a", made(*ARGUMENTS["ended"])))
    report("keys in the environment", "SUCCEEDED" if {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} & set(os.environ)
           else "refused none are there")


def host():
    for path in ("keys.json", "sessions.secret", "roles.json", "audit", "objects/index.db", "jobs/jobs.db",
                 f"jobs/{VICTIM}/spec.json", f"jobs/{VICTIM}/ml/model/secret", f"jobs/{JOB}/spec.json",
                 f"jobs/{JOB}/journal.jsonl", "."):
        attempt(f"open {path}", lambda path=path: os.stat(f"{DATA_DIR}/{path}"))
        attempt(f"open {path} by /proc/1/root", lambda path=path: os.stat(f"/proc/1/root{DATA_DIR}/{path}"))
    for path in ("/etc/shadow", "/root", "/home", "/var/lib", "/run/dbus", "/sys/fs/cgroup", "/dev/mem", "/dev/kmsg"):
        attempt(f"look at {path}", lambda path=path: os.listdir(path) if os.path.isdir(path) else open(path).read())
    attempt("write to /usr", lambda: open("/usr/bin/atelier-attack", "w"))
    attempt("write to /etc", lambda: open("/etc/atelier-attack", "w"))
    attempt("the victim's process", lambda: os.kill(ARGUMENTS["victim_pid"], 0))
    attempt("the server's process", lambda: os.kill(ARGUMENTS["server_pid"], signal.SIGTERM))
    attempt("environment of the server", lambda: open(f"/proc/{ARGUMENTS['server_pid']}/environ", "rb").read())
    seen = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            seen[pid] = open(f"/proc/{pid}/cmdline").read()
        except OSError:
            pass
    foreign = {pid: line for pid, line in seen.items() if "serve" in line or VICTIM in line}
    report("processes of others", f"SUCCEEDED {foreign}" if any("data-dir" in line for line in foreign.values())
           else "refused not seen")
    libc = ctypes.CDLL(None, use_errno=True)

    def syscall(name, *arguments):
        if getattr(libc, name)(*arguments) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return "done"
    attempt("ptrace", lambda: syscall("ptrace", 16, ARGUMENTS["victim_pid"], 0, 0))
    attempt("become root", lambda: os.setuid(0))
    attempt("new user namespace", lambda: syscall("unshare", 0x10000000))
    attempt("mount", lambda: syscall("mount", b"/", b"/tmp", None, 4096, None))
    attempt("chroot", lambda: os.chroot("/tmp"))
    attempt("an abstract socket of the host", lambda: socket.socket(socket.AF_UNIX).connect("\0" + ARGUMENTS["socket"]))


def network():
    """Of the host and of other jobs only what this server is; `heard` is what all of them answer."""
    def reach(address, port, device=None):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as client:
            if device:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
            client.settimeout(3)
            client.connect((address, port))
            return client.recv(100) or b"closed at once"

    def unreachable(name, *where):
        try:
            got = f"SUCCEEDED {reach(*where)}"
        except OSError as error:
            got = f"refused {type(error).__name__} {error}"
        report(name, got)

    def own_loopback():
        with socket.create_server(("127.0.0.1", ARGUMENTS["host_port"])) as listener:
            with socket.create_connection(listener.getsockname()) as client:
                listener.accept()[0].sendall(b"own")
                assert client.recv(3) == b"own"
    control("control: a port of the host's is free on one's own loopback", own_loopback)
    devices = [name for name in os.listdir("/proc/sys/net/ipv4/conf") if name not in ("all", "default", "lo")]
    gateways = [socket.inet_ntoa(bytes.fromhex(line.split()[2])[::-1]) for line in open("/proc/net/route").readlines()[1:]
                if line.split()[2] != "00000000"]
    for what in ("host", "victim"):
        port = ARGUMENTS[f"{what}_port"]
        for address in ("127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "0.0.0.0", *gateways):
            unreachable(f"loopback of the {what} by {address}", address, port)
            for device in devices:
                unreachable(f"loopback of the {what} by {address} and {device}", address, port, device)
    for device in devices:
        for address in ("127.0.0.1", "::1"):
            family, place = socket.AF_INET6 if ":" in address else socket.AF_INET, (address, ARGUMENTS["host_port"])
            with socket.socket(family, socket.SOCK_DGRAM) as sender, socket.socket(family, socket.SOCK_DGRAM) as own:
                own.bind(place)
                own.settimeout(10)
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
                sender.sendto(b"from the attacker", place)
                try:  # the host's own socket is looked at by test_trust.py
                    got = f"refused: came back to one's own loopback: {own.recv(99)}"
                except OSError as error:
                    got = f"SUCCEEDED? {error}"
            report(f"a datagram for the host's loopback at {address} by {device}", got)
    attempt("a raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP))
    attempt("a packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))


for part in (objects, presigned, other_services, tokens, host) + ((network,) if ARGUMENTS["own_network"] else ()):
    part()
print("attacks done", flush=True)
