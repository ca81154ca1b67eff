"""What test_boto3_s3.py leaves out of S3 by the newest boto3: checksums over parts, conditions, copies, versions of
lists, tags, streams, odd keys in every operation."""
import base64
import hashlib
import io
import os
import threading
import zlib

import pytest

MIB = 1 << 20
BUCKET = "conformance"


@pytest.fixture(scope="module")
def s3(atelier_server):
    import boto3
    client = boto3.session.Session().client("s3")
    client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    return client


def refused_with(s3, code, call, **arguments):
    with pytest.raises(s3.exceptions.ClientError) as refused:
        call(Bucket=BUCKET, **arguments)
    assert refused.value.response["Error"]["Code"] == code
    return refused.value.response


@pytest.mark.parametrize("algorithm, kind", [("CRC32", "COMPOSITE"), ("CRC32", "FULL_OBJECT"), ("CRC32C", "FULL_OBJECT"),
                                             ("CRC64NVME", "FULL_OBJECT"), ("SHA1", "COMPOSITE"), ("SHA256", "COMPOSITE")])
def test_parts_have_checksums_and_so_has_the_whole(s3, algorithm, kind):
    key, parts = f"parts/{algorithm}/{kind}", [os.urandom(5 * MIB), os.urandom(100)]
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=key, ChecksumAlgorithm=algorithm, ChecksumType=kind)
    target = {"Bucket": BUCKET, "Key": key, "UploadId": upload["UploadId"]}
    done = []
    for number, body in enumerate(parts, 1):
        part = s3.upload_part(**target, PartNumber=number, Body=body, ChecksumAlgorithm=algorithm)
        done.append({"PartNumber": number, "ETag": part["ETag"], f"Checksum{algorithm}": part[f"Checksum{algorithm}"]})
    listed = s3.list_parts(**target)["Parts"]
    assert [part[f"Checksum{algorithm}"] for part in listed] == [part[f"Checksum{algorithm}"] for part in done]
    whole = s3.complete_multipart_upload(**target, MultipartUpload={"Parts": done}, ChecksumType=kind)
    assert whole["ChecksumType"] == kind
    if (algorithm, kind) == ("CRC32", "FULL_OBJECT"):
        assert whole["ChecksumCRC32"] == base64.b64encode(zlib.crc32(b"".join(parts)).to_bytes(4, "big")).decode()
    if algorithm == "SHA256":
        raws = b"".join(hashlib.sha256(part).digest() for part in parts)
        assert whole["ChecksumSHA256"] == base64.b64encode(hashlib.sha256(raws).digest()).decode() + "-2"
    got = s3.get_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
    assert got["Body"].read() == b"".join(parts) and got[f"Checksum{algorithm}"] == whole[f"Checksum{algorithm}"]


def test_writes_under_conditions(s3):
    etag = s3.put_object(Bucket=BUCKET, Key="cond", Body=b"1", IfNoneMatch="*")["ETag"]
    refused_with(s3, "PreconditionFailed", s3.put_object, Key="cond", Body=b"2", IfNoneMatch="*")
    refused_with(s3, "PreconditionFailed", s3.put_object, Key="cond", Body=b"2", IfMatch='"no"')
    s3.put_object(Bucket=BUCKET, Key="cond", Body=b"2", IfMatch=etag)
    refused_with(s3, "304", s3.get_object, Key="cond", IfNoneMatch=s3.head_object(Bucket=BUCKET, Key="cond")["ETag"])
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="cond")
    target = {"Key": "cond", "UploadId": upload["UploadId"]}
    part = s3.upload_part(Bucket=BUCKET, **target, PartNumber=1, Body=b"parts")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    refused_with(s3, "PreconditionFailed", s3.complete_multipart_upload, **target, MultipartUpload=parts, IfNoneMatch="*")
    s3.abort_multipart_upload(Bucket=BUCKET, **target)
    refused_with(s3, "NoSuchUpload", s3.list_parts, **target)
    assert not s3.list_multipart_uploads(Bucket=BUCKET, Prefix="cond").get("Uploads")


def test_of_many_creators_at_once_one_wins(s3):
    won = []

    def create(number):
        try:
            s3.put_object(Bucket=BUCKET, Key="race", Body=str(number).encode(), IfNoneMatch="*")
            won.append(number)
        except s3.exceptions.ClientError as error:
            assert error.response["Error"]["Code"] == "PreconditionFailed"
    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(won) == 1 and s3.get_object(Bucket=BUCKET, Key="race")["Body"].read() == str(won[0]).encode()


def test_copies_take_or_replace_metadata_and_can_be_made_of_parts(s3):
    body = os.urandom(6 * MIB)
    s3.put_object(Bucket=BUCKET, Key="from +%", Body=body, Metadata={"a": "b"}, Tagging="k=v", ServerSideEncryption="aws:kms")
    source = {"Bucket": BUCKET, "Key": "from +%"}
    s3.copy_object(Bucket=BUCKET, Key="to", CopySource=source)
    assert s3.head_object(Bucket=BUCKET, Key="to")["Metadata"] == {"a": "b"}
    assert s3.get_object_tagging(Bucket=BUCKET, Key="to")["TagSet"] == [{"Key": "k", "Value": "v"}]
    s3.copy_object(Bucket=BUCKET, Key="to", CopySource=source, MetadataDirective="REPLACE", Metadata={"c": "d"})
    assert s3.head_object(Bucket=BUCKET, Key="to")["Metadata"] == {"c": "d"}
    refused_with(s3, "PreconditionFailed", s3.copy_object, Key="to", CopySource=source, CopySourceIfMatch='"no"')
    from boto3.s3.transfer import TransferConfig
    s3.copy(source, BUCKET, "in parts", Config=TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB))
    copied = s3.get_object(Bucket=BUCKET, Key="in parts")
    assert copied["ETag"].endswith('-2"') and copied["Body"].read() == body


def test_streams_of_unknown_kind_go_up_and_parts_of_them_come_down(s3):
    body = os.urandom(9 * MIB)
    s3.upload_fileobj(io.BytesIO(body), BUCKET, "stream")
    back = io.BytesIO()
    s3.download_fileobj(BUCKET, "stream", back)
    assert back.getvalue() == body
    part = s3.get_object(Bucket=BUCKET, Key="stream", PartNumber=2)
    assert part["PartsCount"] == 2 and part["Body"].read() == body[8 * MIB:]
    attributes = s3.get_object_attributes(Bucket=BUCKET, Key="stream", ObjectAttributes=["ObjectSize", "ObjectParts", "Checksum"])
    assert attributes["ObjectSize"] == len(body) and attributes["ObjectParts"]["TotalPartsCount"] == 2


ODD_KEYS = ["a+b", "a b", "a%2Fb", "//", "/lead", "./a", "a/..", "e\u0301", "\u00e9", "\U0001f600", "<&>\"'", "tab\t", "k" * 1024]


def test_odd_keys_are_copied_tagged_and_deleted_many_at_a_time(s3):
    for key in ODD_KEYS:
        s3.put_object(Bucket=BUCKET, Key="odd/" + key[:1020], Body=key.encode())
        s3.copy_object(Bucket=BUCKET, Key="copy/" + key[:1019], CopySource={"Bucket": BUCKET, "Key": "odd/" + key[:1020]})
        assert s3.get_object(Bucket=BUCKET, Key="copy/" + key[:1019])["Body"].read() == key.encode()
    for lister in ("list_objects", "list_objects_v2"):
        pages = s3.get_paginator(lister).paginate(Bucket=BUCKET, Prefix="odd/", PaginationConfig={"PageSize": 4})
        keys = [entry["Key"] for page in pages for entry in page["Contents"]]
        assert keys == sorted(("odd/" + key[:1020] for key in ODD_KEYS), key=str.encode)
    deleted = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})
    assert [entry["Key"] for entry in deleted["Deleted"]] == keys and "Errors" not in deleted
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="odd/")["KeyCount"] == 0


@pytest.mark.parametrize("algorithm", ["SHA512", "XXHASH64", "XXHASH3", "XXHASH128"])
def test_the_newest_checksums_are_what_botocore_computes(s3, algorithm):
    body = os.urandom(300_000)
    put = s3.put_object(Bucket=BUCKET, Key="newest", Body=body, ChecksumAlgorithm=algorithm)
    got = s3.get_object(Bucket=BUCKET, Key="newest", ChecksumMode="ENABLED")  # which botocore checks again
    assert got["Body"].read() == body and got[f"Checksum{algorithm}"] == put[f"Checksum{algorithm}"]
    wrong = base64.b64encode(bytes(len(base64.b64decode(put[f"Checksum{algorithm}"])))).decode()
    refused_with(s3, "BadDigest", s3.put_object, Key="newest", Body=body, **{f"Checksum{algorithm}": wrong})


def test_attributes_name_the_parts_with_their_checksums(s3):
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="parted", ChecksumAlgorithm="CRC32C")
    target = {"Bucket": BUCKET, "Key": "parted", "UploadId": upload["UploadId"]}
    done = []
    for number in (2, 5, 9):  # numbers may have gaps
        body = os.urandom(5 * MIB if number < 9 else 77)
        part = s3.upload_part(**target, PartNumber=number, Body=body, ChecksumAlgorithm="CRC32C")
        done.append({"PartNumber": number, "ETag": part["ETag"], "ChecksumCRC32C": part["ChecksumCRC32C"]})
    s3.complete_multipart_upload(**target, MultipartUpload={"Parts": done})
    got = s3.get_object_attributes(Bucket=BUCKET, Key="parted", ObjectAttributes=["ObjectParts"], MaxParts=2)["ObjectParts"]
    assert got["TotalPartsCount"] == 3 and got["IsTruncated"] and got["NextPartNumberMarker"] == 5
    assert [part["ChecksumCRC32C"] for part in got["Parts"]] == [part["ChecksumCRC32C"] for part in done[:2]]
    last = s3.get_object(Bucket=BUCKET, Key="parted", PartNumber=9, ChecksumMode="ENABLED")
    assert last["ContentLength"] == 77 and last["ChecksumCRC32C"] == done[2]["ChecksumCRC32C"] and last["PartsCount"] == 3
    refused_with(s3, "416", s3.head_object, Key="parted", PartNumber=1)


def test_settings_of_a_bucket_are_kept_or_refused_by_name(s3):
    rules = {"CORSRules": [{"AllowedOrigins": ["https://*.example.org"], "AllowedMethods": ["GET"], "MaxAgeSeconds": 9}]}
    refused_with(s3, "NoSuchCORSConfiguration", s3.get_bucket_cors)
    s3.put_bucket_cors(Bucket=BUCKET, CORSConfiguration=rules)
    assert s3.get_bucket_cors(Bucket=BUCKET)["CORSRules"] == rules["CORSRules"]
    s3.delete_bucket_cors(Bucket=BUCKET)
    refused_with(s3, "NoSuchTagSet", s3.get_bucket_tagging)
    s3.put_bucket_tagging(Bucket=BUCKET, Tagging={"TagSet": [{"Key": "team", "Value": "vision"}]})
    assert s3.get_bucket_tagging(Bucket=BUCKET)["TagSet"] == [{"Key": "team", "Value": "vision"}]
    abort = {"ID": "abort", "Status": "Enabled", "Filter": {"Prefix": "tmp/"},
             "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2}}
    s3.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": [abort]})
    assert s3.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"] == [abort]
    expire = {"Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}
    said = refused_with(s3, "NotImplemented", s3.put_bucket_lifecycle_configuration, LifecycleConfiguration={"Rules": [expire]})
    assert "Expiration" in said["Error"]["Message"]
    s3.delete_bucket_lifecycle(Bucket=BUCKET)
    refused_with(s3, "NoSuchBucketPolicy", s3.get_bucket_policy)
    assert "policy" in refused_with(s3, "NotImplemented", s3.put_bucket_policy, Policy="{}")["Error"]["Message"]
    refused_with(s3, "ServerSideEncryptionConfigurationNotFoundError", s3.get_bucket_encryption)
    assert s3.get_public_access_block(Bucket=BUCKET)["PublicAccessBlockConfiguration"]["BlockPublicPolicy"]
    assert s3.get_bucket_ownership_controls(Bucket=BUCKET)["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    s3.put_object(Bucket=BUCKET, Key="owned", Body=b"")
    assert [g["Permission"] for g in s3.get_object_acl(Bucket=BUCKET, Key="owned")["Grants"]] == ["FULL_CONTROL"]
    refused_with(s3, "AccessControlListNotSupported", s3.put_object_acl, Key="owned", ACL="public-read")
    refused_with(s3, "NotImplemented", s3.put_bucket_versioning, VersioningConfiguration={"Status": "Enabled"})
    assert "Status" not in s3.get_bucket_versioning(Bucket=BUCKET)
    assert s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] == "us-west-2"
    refused_with(s3, "AccessDenied", s3.list_objects_v2, ExpectedBucketOwner="111111111111")


def test_a_bucket_is_emptied_by_its_versions_and_under_conditions(s3):
    s3.create_bucket(Bucket="emptied", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    etag = s3.put_object(Bucket="emptied", Key="a", Body=b"1")["ETag"]
    for key in ("b", "c/d"):
        s3.put_object(Bucket="emptied", Key=key, Body=b"2")
    outcome = s3.delete_objects(Bucket="emptied", Delete={"Objects": [{"Key": "a", "ETag": etag}, {"Key": "b", "ETag": etag}]})
    assert [d["Key"] for d in outcome["Deleted"]] == ["a"] and outcome["Errors"][0]["Code"] == "PreconditionFailed"
    for page in s3.get_paginator("list_object_versions").paginate(Bucket="emptied", PaginationConfig={"PageSize": 1}):
        objects = [{"Key": v["Key"], "VersionId": v["VersionId"]} for v in page["Versions"]]
        s3.delete_objects(Bucket="emptied", Delete={"Objects": objects})
    s3.delete_bucket(Bucket="emptied")
    pages = s3.get_paginator("list_buckets").paginate(PaginationConfig={"PageSize": 1})
    assert "emptied" not in [bucket["Name"] for page in pages for bucket in page["Buckets"]]


def test_what_is_not_served_says_so_by_name(s3):
    said = refused_with(s3, "NotImplemented", s3.list_bucket_inventory_configurations)
    assert "'inventory'" in said["Error"]["Message"]
