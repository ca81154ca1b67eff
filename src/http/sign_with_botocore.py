#!/usr/bin/env python3
"""Prints requests that the real botocore signed, as JSON lines, for sigv4_botocore_test.cc.

Two kinds: bare requests given to botocore's signers (odd paths, queries and headers), and what botocore's
clients would send for real operations, caught just before the socket.
"""
import base64
import glob
import io
import itertools
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = glob.glob(str(ROOT / ".venv/**/site-packages"), recursive=True)
try:
    import botocore.auth
    import botocore.session
    from botocore.awsrequest import AWSRequest, AWSResponse
    from botocore.config import Config
    from botocore.credentials import Credentials
except ImportError as missing:
    sys.exit(f"{missing}: `make setup` puts botocore into .venv")

PLAIN = Credentials("AKIDPLAIN", "secret/plain+key")
SESSION = Credentials("ASIASESSION", "secret", "FwoGZXIvYXdzEA//token+with/odd==")
HOST = "127.0.0.1:9000"

PATHS = ["/", "/b", "/b/k", "/b//k", "/b/./x/../y", "/b/%20", "/b/a%2Bb", "/b/%C3%A9%CC%81", "/b/k%3Dv", "/b/~-._", "/b/k/",
         "/b/%25", "/b/%252F", "/b/%01%7F", "/b/%F0%9F%98%80", "/b/" + "k" * 1024, "/b/%2E%2E/x", "/b/a%26b%3Fc%23d",
         "/b/!$'()*,;:@"]
QUERIES = ["", "uploads", "acl=", "uploads=", "a=1&b=2", "b=2&a=1", "a=2&a=1", "prefix=a%2Bb%20c", "prefix=%2F&delimiter=%2F",
           "A=1&a=2&Ab=3", "x=%3D%3D&y=%26", "list-type=2&continuation-token=1%2Fabc%3D%3D", "a-b=1&a=2&a.b=3", "marker=%C3%A9",
           "partNumber=1&uploadId=abc.def~_-"]
HEADERS = [{}, {"x-amz-meta-a": "1", "x-amz-meta-a-b": "2"}, {"X-Amz-Meta-Spaces": "  a   b  c "}, {"Content-Type": "text/plain; charset=utf-8"},
           {"Range": "bytes=0-9"}, {"x-amz-meta-empty": ""}, {"If-None-Match": '"etag"', "Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="},
           {"x-amz-copy-source": "/b/k%20%2B", "User-Agent": "ignored", "Expect": "100-continue"}]
BODIES = [b"", b"hello", bytes(range(256))]

out = []


def emit(name, method, url, headers, body=b""):
    target = url.split(HOST, 1)[1] or "/"
    headers = [[k, v.decode() if isinstance(v, bytes) else str(v)] for k, v in headers]
    if not any(k.lower() == "host" for k, _ in headers):
        headers.append(["Host", HOST])
    out.append({"name": name, "method": method, "target": target if target.startswith("/") else "/" + target,
                "headers": headers, "body": base64.b64encode(body).decode()})


def bare(signer, name, method, path, query, headers, body=b""):
    url = f"http://{HOST}{path}" + (f"?{query}" if query else "")
    request = AWSRequest(method=method, url=url, headers=dict(headers), data=body)
    request.context["timestamp"] = ""
    signer.add_auth(request)
    prepared = request.prepare()
    emit(f"{name} {method} {path[:40]}?{query} {sorted(headers)}", method, prepared.url, prepared.headers.items(), body)


def sign_bare():
    cases = list(itertools.product(PATHS, QUERIES[:1])) + list(itertools.product(PATHS[1:3], QUERIES))
    for index, (path, query) in enumerate(cases):
        credentials = SESSION if index % 3 == 0 else PLAIN
        method = ["GET", "PUT", "DELETE", "POST", "HEAD"][index % 5]
        for headers in HEADERS if index < 4 else [HEADERS[index % len(HEADERS)]]:
            body = BODIES[index % len(BODIES)]
            bare(botocore.auth.S3SigV4Auth(credentials, "s3", "us-west-2"), "s3", method, path, query, headers, body)
            bare(botocore.auth.SigV4Auth(credentials, "sagemaker", "eu-central-1"), "service", method, path, query, headers, body)
        for expires in (600, 604800) if index < 3 else (600,):
            bare(botocore.auth.S3SigV4QueryAuth(credentials, "s3", "us-west-2", expires=expires), "presigned", method, path,
                 query if "=" in query else "", {})
        bare(botocore.auth.SigV4QueryAuth(credentials, "sts", "us-east-1"), "presigned service", "GET", path, "Action=X&Version=1", {})
    for headers in HEADERS:
        bare(botocore.auth.S3SigV4Auth(PLAIN, "s3", "us-west-2"), "dated", "GET", "/b/k", "a=1", {**headers, "Date": "x"})
    for query in ["", "uploads", "acl", "versionId=3%2B4", "response-content-type=text%2Fplain&response-expires=0", "partNumber=1&uploadId=x"]:
        for credentials in (PLAIN, SESSION):
            for headers in ({}, {"Content-Type": "text/plain"}, {"x-amz-meta-b": "1", "x-amz-acl": "private"}):
                bare(botocore.auth.HmacV1QueryAuth(credentials, expires=600), "v2", "GET", "/b/a%20%2Bk", query, headers)


class Caught(Exception):
    pass


def catch(client, call, **arguments):
    def before_send(request, **_):
        body = request.body
        if body is None:
            body = b""
        elif hasattr(body, "read"):
            body = b"".join(iter(lambda: body.read(65536), b""))
        elif isinstance(body, str):
            body = body.encode()
        emit(f"client {client.meta.service_model.service_name}.{call} {arguments}"[:200], request.method, request.url,
             request.headers.items(), body)
        raise Caught

    event = f"before-send.{client.meta.service_model.service_id.hyphenize()}"
    client.meta.events.register(event, before_send)
    try:
        getattr(client, call)(**arguments)
    except Caught:
        pass
    finally:
        client.meta.events.unregister(event, before_send)


def sign_clients():
    session = botocore.session.Session()
    session.set_config_variable("metadata_service_num_attempts", 0)

    def client(service, credentials=PLAIN, scheme="http", **config):
        return session.create_client(
            service, region_name="us-west-2", endpoint_url=f"{scheme}://{HOST}", aws_access_key_id=credentials.access_key,
            aws_secret_access_key=credentials.secret_key, aws_session_token=credentials.token,
            config=Config(retries={"max_attempts": 1, "mode": "standard"}, **config))

    for credentials in (PLAIN, SESSION):
        s3 = client("s3", credentials)
        for key in ["k", "a b+c/=é", "//", "..", "a/../b", "\x01\n", "日本", "%41", "k" * 1024]:
            catch(s3, "put_object", Bucket="bucket", Key=key, Body=b"hello world" * 1000, Metadata={"a": "1", "a-b": " x  y "})
            catch(s3, "put_object", Bucket="bucket", Key=key, Body=io.BytesIO(b"0123456789" * 30000), ChecksumAlgorithm="SHA256")
            catch(s3, "get_object", Bucket="bucket", Key=key, Range="bytes=1-5", ChecksumMode="ENABLED")
            catch(s3, "copy_object", Bucket="bucket", Key="to", CopySource={"Bucket": "bucket", "Key": key})
            catch(s3, "list_objects_v2", Bucket="bucket", Prefix=key, Delimiter="/", StartAfter="a+b &=")
            catch(s3, "upload_part", Bucket="bucket", Key=key, PartNumber=1, UploadId="u/+=", Body=io.BytesIO(b""))
            for expires in (600, 3600):
                for method in ("get_object", "put_object"):
                    url = s3.generate_presigned_url(method, Params={"Bucket": "bucket", "Key": key}, ExpiresIn=expires)
                    emit(f"presigned by default {method} {key[:20]!r}", "GET" if method == "get_object" else "PUT", url, [])
            v4 = client("s3", credentials, signature_version="s3v4")
            url = v4.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": key, "ResponseContentType": "a/b+c"})
            emit(f"presigned v4 {key[:20]!r}", "GET", url, [])
        # Over TLS botocore streams: aws-chunked, unsigned, with the checksum in a trailer.
        tls = client("s3", credentials, "https")
        for algorithm in ("CRC32", "SHA1", "SHA256"):
            for size in (0, 1, 3_000_000):
                catch(tls, "put_object", Bucket="bucket", Key="a b", Body=io.BytesIO(b"x" * size),
                      ChecksumAlgorithm=algorithm)
        catch(s3, "list_buckets")
        catch(s3, "create_bucket", Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        catch(s3, "create_multipart_upload", Bucket="bucket", Key="k")
        catch(s3, "delete_objects", Bucket="bucket", Delete={"Objects": [{"Key": "a&b"}]})
        catch(client("sagemaker", credentials), "describe_training_job", TrainingJobName="job")
        catch(client("sagemaker", credentials), "list_training_jobs", NameContains="é+ ", MaxResults=5)
        catch(client("sagemaker-runtime", credentials), "invoke_endpoint", EndpointName="a-b", Body=b"\x00\xff", ContentType="image/jpeg")
        catch(client("logs", credentials), "get_log_events", logGroupName="/aws/sagemaker/TrainingJobs", logStreamName="job/algo-1")
        catch(client("sts", credentials), "get_caller_identity")
        catch(client("iam", credentials), "get_role", RoleName="r")
        catch(client("efs", credentials), "describe_file_systems", CreationToken="a/b +c")


sign_bare()
sign_clients()
for line in out:
    print(json.dumps(line))
