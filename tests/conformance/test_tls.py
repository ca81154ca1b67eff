"""HTTPS: real clients over TLS with a certificate of their own to trust, for S3 and for a job."""
import io
import os
import socket
import ssl
import subprocess
import signal
import time

import pytest

import jobs
from server import ATELIER, Server


def certificate(folder, name, days="2"):
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-days", days,
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    key.chmod(0o600)
    return cert, key


@pytest.fixture(scope="module")
def https(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    cert, key = certificate(folder, "one")
    server = Server(folder / "data").start("127.0.0.1:0", "--tls-certificate", cert, "--tls-key", key)
    server.certificate, server.key = cert, key
    yield server
    server.stop()


@pytest.fixture(scope="module")
def session(https):
    import boto3
    environment = https.environment()
    assert environment["AWS_ENDPOINT_URL"] == https.url and https.url.startswith("https://127.0.0.1:")
    assert environment["AWS_CA_BUNDLE"] == str(https.certificate)
    made = boto3.session.Session(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"],
                                 region_name="us-west-2")
    return lambda name, ca=environment["AWS_CA_BUNDLE"]: made.client(name, endpoint_url=https.url, verify=ca)


def test_objects_go_over_tls_whole(session, tmp_path):
    from boto3.s3.transfer import TransferConfig
    s3 = session("s3")
    s3.create_bucket(Bucket="tls", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    # boto3 sends a body with a checksum behind it, unsigned, over https alone.
    seen = []
    s3.meta.events.register("before-send.s3.PutObject", lambda request, **_: seen.append(
        request.headers.get("X-Amz-Content-SHA256")))
    s3.put_object(Bucket="tls", Key="small", Body=io.BytesIO(b"small"))
    assert seen in ([b"STREAMING-UNSIGNED-PAYLOAD-TRAILER"], ["STREAMING-UNSIGNED-PAYLOAD-TRAILER"]), seen
    assert s3.get_object(Bucket="tls", Key="small")["Body"].read() == b"small"
    blob = os.urandom(1 << 20) * 20 + b"end"
    path = tmp_path / "large"
    path.write_bytes(blob)
    s3.upload_file(str(path), "tls", "large", Config=TransferConfig(multipart_threshold=8 << 20))
    s3.download_file("tls", "large", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == blob
    assert s3.get_object(Bucket="tls", Key="large", Range="bytes=-3")["Body"].read() == b"end"


def test_a_job_runs_behind_tls(https, session):
    s3, sagemaker = session("s3"), session("sagemaker")
    s3.create_bucket(Bucket="tls-jobs", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    name = jobs.name_of("tls")
    s3.put_object(Bucket="tls-jobs", Key="s.tar.gz", Body=jobs.pack("""
        import json, os, urllib.request
        uri = os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        assert uri.startswith("http://127.0.0.1:"), uri
        headers = {"Authorization": os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN"]}
        assert json.load(urllib.request.urlopen(urllib.request.Request(uri, headers=headers)))["AccessKeyId"]
        open("/opt/ml/model/weights", "w").write("w")
    """))
    sagemaker.create_training_job(**{**jobs.request(name, "s3://tls-jobs/s.tar.gz"),
                                     "OutputDataConfig": {"S3OutputPath": "s3://tls-jobs/out"}})
    sagemaker.get_waiter("training_job_completed_or_stopped").wait(
        TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    job = sagemaker.describe_training_job(TrainingJobName=name)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert s3.head_object(Bucket="tls-jobs", Key=f"out/{name}/output/model.tar.gz")["ContentLength"] > 0


def test_our_own_client_trusts_what_it_is_told_and_nothing_else(https, tmp_path):
    environment = https.environment()
    run = lambda **changes: subprocess.run(  # noqa: E731
        [ATELIER, "s3", "ls"], env={**environment, **changes}, text=True, capture_output=True, timeout=60)
    assert run().returncode == 0
    other, _ = certificate(tmp_path, "other")
    refused = run(AWS_CA_BUNDLE=str(other))
    assert refused.returncode != 0 and "certificate" in refused.stderr.lower(), refused.stderr


def test_a_client_without_the_certificate_refuses_and_plain_http_gets_nowhere(https, session):
    from botocore.exceptions import SSLError
    with pytest.raises(SSLError):
        session("s3", True).list_buckets()
    host, port = https.url.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as plain:
        plain.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"ok" not in plain.recv(1000)
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            old.wrap_socket(raw)


def served_by(https):
    host, port = https.url.removeprefix("https://").split(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, int(port)), timeout=20) as raw, context.wrap_socket(raw) as secure:
        return secure.getpeercert(binary_form=True)


def test_sighup_reads_the_certificate_again(https, session, tmp_path):
    before = served_by(https)
    kept = https.certificate.read_bytes(), https.key.read_bytes()
    cert, key = certificate(tmp_path, "two")
    https.certificate.write_bytes(b"no certificate")
    https.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 20
    while "the certificate stays as it was" not in https.log.read_text():
        assert time.monotonic() < deadline, https.log.read_text()
        time.sleep(0.05)
    assert served_by(https) == before
    https.certificate.write_bytes(cert.read_bytes())
    https.key.write_bytes(key.read_bytes())
    https.process.send_signal(signal.SIGHUP)
    while served_by(https) == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    https.certificate.write_bytes(kept[0])
    https.key.write_bytes(kept[1])
    https.process.send_signal(signal.SIGHUP)
    while served_by(https) != before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("arguments, said", [
    (["--tls-certificate", "CERT"], "go together"),
    (["--tls-certificate", "KEY", "--tls-key", "KEY"], "--tls-certificate"),
    (["--tls-certificate", "CERT", "--tls-key", "CERT"], "--tls-key"),
    (["--tls-certificate", "CERT", "--tls-key", "OTHER"], "key values mismatch"),
    (["--tls-certificate", "CERT", "--tls-key", "OPEN"], "can be read by everybody"),
    (["--url", "https://x:1"], "--tls-certificate"),
])
def test_what_cannot_be_served_is_said_by_option(https, tmp_path, arguments, said):
    _, other = certificate(tmp_path, "other")
    known = tmp_path / "open.key"
    known.write_bytes(https.key.read_bytes())
    known.chmod(0o644)
    names = {"CERT": https.certificate, "KEY": https.key, "OTHER": other, "OPEN": known}
    done = subprocess.run([ATELIER, "serve", "--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0",
                           *[names.get(each, each) for each in arguments]], text=True, capture_output=True, timeout=20)
    assert done.returncode == 2 or done.returncode == 4
    assert said in done.stderr, done.stderr
