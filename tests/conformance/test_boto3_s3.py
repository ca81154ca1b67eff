"""The embedded S3 by the newest boto3, with its own choice of checksums and uploads."""
import hashlib
import os
import urllib.error
import urllib.request

import pytest

MIB = 1 << 20


@pytest.fixture(scope="module")
def s3(atelier_server):
    import boto3
    client = boto3.session.Session().client("s3")
    client.create_bucket(Bucket="storage", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    client.get_waiter("bucket_exists").wait(Bucket="storage", WaiterConfig={"Delay": 1, "MaxAttempts": 5})
    return client


def test_an_object_comes_back_as_it_was_put(s3):
    body = os.urandom(100_000)
    put = s3.put_object(Bucket="storage", Key="a/b.bin", Body=body, Metadata={"owner": "me"}, ContentType="image/jpeg")
    s3.get_waiter("object_exists").wait(Bucket="storage", Key="a/b.bin", WaiterConfig={"Delay": 1, "MaxAttempts": 5})
    got = s3.get_object(Bucket="storage", Key="a/b.bin", ChecksumMode="ENABLED")
    assert got["Body"].read() == body  # botocore checks the checksum while it reads
    assert got["ETag"] == put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    assert got["Metadata"] == {"owner": "me"} and got["ContentType"] == "image/jpeg"
    part = s3.get_object(Bucket="storage", Key="a/b.bin", Range="bytes=10-19")
    assert part["Body"].read() == body[10:20] and part["ContentRange"] == "bytes 10-19/100000"


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_checksums_that_clients_send_are_checked_and_kept(s3, algorithm):
    put = s3.put_object(Bucket="storage", Key=algorithm, Body=b"checked", ChecksumAlgorithm=algorithm)
    head = s3.head_object(Bucket="storage", Key=algorithm, ChecksumMode="ENABLED")
    assert head[f"Checksum{algorithm}"] == put[f"Checksum{algorithm}"]


def test_a_body_that_does_not_fit_its_checksum_is_refused(s3):
    with pytest.raises(s3.exceptions.ClientError) as refused:
        s3.put_object(Bucket="storage", Key="wrong", Body=b"checked", ChecksumSHA256="A" * 43 + "=")
    assert refused.value.response["Error"]["Code"] in ("BadDigest", "XAmzContentChecksumMismatch", "InvalidRequest")
    with pytest.raises(s3.exceptions.ClientError) as missing:
        s3.head_object(Bucket="storage", Key="wrong")
    assert missing.value.response["Error"]["Code"] == "404"


def test_a_large_file_goes_up_in_parts_and_comes_down_in_ranges(s3, tmp_path):
    from boto3.s3.transfer import TransferConfig
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(20 * MIB + 7))
    parts = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=8 * MIB)
    s3.upload_file(str(source), "storage", "large", Config=parts)
    assert s3.head_object(Bucket="storage", Key="large")["ETag"].endswith('-3"')
    s3.download_file("storage", "large", str(back), Config=parts)
    assert back.read_bytes() == source.read_bytes()


ODD_KEYS = ["plain", "with space", "a//b", "a/../b", "..", "trailing/", "été", "e\u0301te\u0301", "😀", "tab\there", "a" * 1024,
            "percent%41", "plus+sign", "q?x=1&y", "#hash", "'quotes\"", "line\nbreak", "\x01control", ".hidden/.", "a\\b"]


def test_any_legal_key_is_kept_apart_and_listed(s3):
    prefix_of = {key: hashlib.sha256(key.encode()).digest() for key in ODD_KEYS}
    for key, body in prefix_of.items():
        s3.put_object(Bucket="storage", Key=key, Body=body)
    for key, body in prefix_of.items():
        assert s3.get_object(Bucket="storage", Key=key)["Body"].read() == body, key
    listed = {entry["Key"] for page in s3.get_paginator("list_objects_v2").paginate(
        Bucket="storage", PaginationConfig={"PageSize": 7}) for entry in page.get("Contents", [])}
    assert set(ODD_KEYS) <= listed


def test_listing_pages_by_prefix_and_delimiter(s3):
    for number in range(12):
        s3.put_object(Bucket="storage", Key=f"tree/{number % 3}/{number}", Body=b"")
    paginator = s3.get_paginator("list_objects_v2")
    keys = [entry["Key"] for page in paginator.paginate(Bucket="storage", Prefix="tree/", PaginationConfig={"PageSize": 5})
            for entry in page["Contents"]]
    assert keys == sorted(f"tree/{n % 3}/{n}" for n in range(12))
    folders = s3.list_objects_v2(Bucket="storage", Prefix="tree/", Delimiter="/")
    assert [p["Prefix"] for p in folders["CommonPrefixes"]] == ["tree/0/", "tree/1/", "tree/2/"]
    old = s3.get_paginator("list_objects").paginate(Bucket="storage", Prefix="tree/1/", PaginationConfig={"PageSize": 2})
    assert [e["Key"] for page in old for e in page["Contents"]] == ["tree/1/1", "tree/1/10", "tree/1/4", "tree/1/7"]


def test_copy_and_delete_many(s3):
    s3.put_object(Bucket="storage", Key="from", Body=b"x", Metadata={"a": "1"})
    s3.copy_object(Bucket="storage", Key="to", CopySource={"Bucket": "storage", "Key": "from"})
    assert s3.head_object(Bucket="storage", Key="to")["Metadata"] == {"a": "1"}
    gone = s3.delete_objects(Bucket="storage", Delete={"Objects": [{"Key": "from"}, {"Key": "to"}, {"Key": "never"}]})
    assert {entry["Key"] for entry in gone["Deleted"]} == {"from", "to", "never"} and "Errors" not in gone
    s3.get_waiter("object_not_exists").wait(Bucket="storage", Key="to", WaiterConfig={"Delay": 1, "MaxAttempts": 5})


def test_conditional_requests(s3):
    tag = s3.put_object(Bucket="storage", Key="once", Body=b"1")["ETag"]
    with pytest.raises(s3.exceptions.ClientError) as taken:
        s3.put_object(Bucket="storage", Key="once", Body=b"2", IfNoneMatch="*")
    assert taken.value.response["Error"]["Code"] == "PreconditionFailed"
    with pytest.raises(s3.exceptions.ClientError) as unchanged:
        s3.get_object(Bucket="storage", Key="once", IfNoneMatch=tag)
    assert unchanged.value.response["ResponseMetadata"]["HTTPStatusCode"] == 304


@pytest.mark.parametrize("signature", [None, "s3v4"])  # boto3 still presigns by version 2 by default
def test_presigned_addresses_work_without_keys(s3, signature):
    import boto3
    from botocore.config import Config
    signer = boto3.session.Session().client("s3", config=Config(signature_version=signature))
    s3.put_object(Bucket="storage", Key="shared picture", Body=b"bytes")
    url = signer.generate_presigned_url("get_object", Params={"Bucket": "storage", "Key": "shared picture"})
    assert ("X-Amz-Signature" in url) == (signature == "s3v4")
    assert urllib.request.urlopen(url).read() == b"bytes"
    put = signer.generate_presigned_url("put_object", Params={"Bucket": "storage", "Key": "sent", "ContentType": "text/x"})
    urllib.request.urlopen(urllib.request.Request(put, data=b"by url", method="PUT", headers={"Content-Type": "text/x"}))
    assert s3.get_object(Bucket="storage", Key="sent")["Body"].read() == b"by url"
    for broken in (url.replace("shared%20picture", "sent"), url + "0"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(broken)
        assert refused.value.code in (400, 403)


def test_missing_things_have_their_own_codes(s3):
    for call, code in ((lambda: s3.get_object(Bucket="storage", Key="nothing"), "NoSuchKey"),
                       (lambda: s3.list_objects_v2(Bucket="no-such-bucket"), "NoSuchBucket"),
                       (lambda: s3.delete_bucket(Bucket="storage"), "BucketNotEmpty")):
        with pytest.raises(s3.exceptions.ClientError) as missing:
            call()
        assert missing.value.response["Error"]["Code"] == code
