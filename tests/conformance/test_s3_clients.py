"""Other people's S3 clients on the embedded S3: rclone, s3fs, pyarrow and the client of s3torchconnector."""
import filecmp
import os
import pathlib
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.s3clients
MIB = 1 << 20


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A folder with what makes clients differ: nothing, a little, parts; names that have to be encoded."""
    folder = tmp_path_factory.mktemp("tree")
    (folder / "deep/er").mkdir(parents=True)
    (folder / "empty").write_bytes(b"")
    (folder / "deep/ü b+c%20.txt").write_text("text")
    (folder / "deep/er/100%").write_text("percent")
    (folder / "large.bin").write_bytes(os.urandom(21 * MIB))
    return folder


def files_of(folder):
    return sorted(str(p.relative_to(folder)) for p in pathlib.Path(folder).rglob("*") if p.is_file())


def assert_same(ours, theirs):
    assert files_of(ours) == files_of(theirs)
    for name in files_of(ours):
        assert filecmp.cmp(ours / name, theirs / name, shallow=False), name


@pytest.fixture
def bucket(atelier_server, request):
    name = request.node.name.replace("_", "-")[:60]
    atelier_server.run("s3", "mb", f"s3://{name}")
    return name


@pytest.fixture
def rclone(atelier_server, bucket):
    if not shutil.which("rclone"):
        pytest.skip("rclone is not installed: scripts/setup test")
    remote = {"RCLONE_CONFIG_A_TYPE": "s3", "RCLONE_CONFIG_A_PROVIDER": "Other", "RCLONE_CONFIG_A_ENV_AUTH": "true",
              "RCLONE_CONFIG_A_ENDPOINT": atelier_server.url, "RCLONE_CONFIG_A_REGION": os.environ["AWS_DEFAULT_REGION"],
              "RCLONE_S3_UPLOAD_CUTOFF": "8M", "RCLONE_S3_CHUNK_SIZE": "5M", "RCLONE_RETRIES": "1", "RCLONE_CONFIG": "/dev/null"}
    environment = {**os.environ, **remote}
    environment.pop("AWS_CA_BUNDLE", None)  # 1.60 refuses to start with it

    def run(*arguments):
        done = subprocess.run(["rclone", *map(str, arguments)], env=environment, text=True, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout
    return run


def test_rclone_syncs(rclone, bucket, tree, tmp_path):
    rclone("sync", tree, f"A:{bucket}/tree")
    rclone("check", "--download", tree, f"A:{bucket}/tree")
    rclone("sync", f"A:{bucket}/tree", tmp_path / "back")
    assert_same(tree, tmp_path / "back")
    rclone("copyto", f"A:{bucket}/tree/large.bin", f"A:{bucket}/copied.bin")
    rclone("moveto", f"A:{bucket}/copied.bin", f"A:{bucket}/moved.bin")
    assert sorted(rclone("lsf", f"A:{bucket}").split()) == ["moved.bin", "tree/"]
    rclone("delete", f"A:{bucket}/tree", "--rmdirs")
    assert rclone("lsf", f"A:{bucket}").split() == ["moved.bin"]
    rclone("cleanup", f"A:{bucket}")
    rclone("purge", f"A:{bucket}")


def test_s3fs_mounts(atelier_server, bucket, tree, tmp_path):
    if not shutil.which("s3fs"):
        pytest.skip("s3fs is not installed: scripts/setup test")
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("this user may not mount: /dev/fuse cannot be opened")
    mount = tmp_path / "mount"
    mount.mkdir()
    keys = tmp_path / "keys"
    keys.write_text(f"{os.environ['AWS_ACCESS_KEY_ID']}:{os.environ['AWS_SECRET_ACCESS_KEY']}")
    keys.chmod(0o600)
    started = subprocess.run(["s3fs", bucket, mount, "-o", f"url={atelier_server.url},use_path_request_style,passwd_file={keys}"
                              f",endpoint={os.environ['AWS_DEFAULT_REGION']},multipart_size=5,retries=1"],
                             text=True, capture_output=True, timeout=60)
    if started.returncode != 0 and "fuse" in started.stderr.lower():
        pytest.skip(f"FUSE does not work here: {started.stderr.strip()[:200]}")
    assert started.returncode == 0, started.stderr
    try:
        if not os.path.ismount(mount):
            pytest.skip("FUSE does not work here: s3fs started, and mounted nothing")
        shutil.copytree(tree, mount / "tree")
        assert_same(tree, mount / "tree")
        (mount / "tree/empty").rename(mount / "tree/renamed")
        with open(mount / "tree/large.bin", "r+b") as file:  # s3fs copies the parts that did not change
            file.seek(20 * MIB)
            file.write(b"changed")
        shutil.rmtree(mount / "tree/deep")
    finally:
        subprocess.run(["umount", mount], check=False)
    import boto3
    s3 = boto3.session.Session().client("s3")
    keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert "tree/renamed" in keys and "tree/empty" not in keys and not [key for key in keys if "deep" in key]
    body = bytearray((tree / "large.bin").read_bytes())
    body[20 * MIB:20 * MIB + 7] = b"changed"
    assert s3.get_object(Bucket=bucket, Key="tree/large.bin")["Body"].read() == body


def test_pyarrow_reads_and_writes(atelier_server, bucket):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.parquet
    from pyarrow import fs
    s3 = fs.S3FileSystem(access_key=os.environ["AWS_ACCESS_KEY_ID"], secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
                         scheme="http", endpoint_override=atelier_server.url.removeprefix("http://"),
                         region=os.environ["AWS_DEFAULT_REGION"])
    table = pyarrow.table({"id": list(range(200_000)), "name": [f"row {i}" for i in range(200_000)]})
    pyarrow.parquet.write_table(table, f"{bucket}/data/part=1/table.parquet", filesystem=s3)
    pyarrow.parquet.write_to_dataset(table.slice(0, 1000), f"{bucket}/set", filesystem=s3)
    back = pyarrow.parquet.read_table(f"{bucket}/data/part=1/table.parquet", filesystem=s3, columns=["name"])
    assert back.column("name").to_pylist() == table.column("name").to_pylist()
    body = os.urandom(17 * MIB)
    with s3.open_output_stream(f"{bucket}/stream") as stream:  # in parts
        for at in range(0, len(body), MIB):
            stream.write(body[at:at + MIB])
    with s3.open_input_file(f"{bucket}/stream") as file:
        file.seek(16 * MIB)
        assert file.read(100) == body[16 * MIB:16 * MIB + 100] and file.size() == len(body)
    listed = s3.get_file_info(fs.FileSelector(bucket, recursive=True))
    assert {entry.path.removeprefix(bucket + "/") for entry in listed if entry.is_file} >= {"stream", "data/part=1/table.parquet"}
    s3.move(f"{bucket}/stream", f"{bucket}/moved")
    s3.copy_file(f"{bucket}/moved", f"{bucket}/copied")
    s3.delete_dir(f"{bucket}/data")
    assert s3.get_file_info(f"{bucket}/data").type == fs.FileType.NotFound
    assert s3.get_file_info(f"{bucket}/copied").size == len(body)


def test_s3torchconnectors_client_reads_and_writes(atelier_server, bucket):
    client_of = pytest.importorskip("s3torchconnectorclient._mountpoint_s3_client",
                                    reason="s3torchconnectorclient is not installed").MountpointS3Client
    client = client_of(region=os.environ["AWS_DEFAULT_REGION"], user_agent_prefix="test", endpoint=atelier_server.url,
                       force_path_style=True, part_size=5 * MIB)
    body = os.urandom(13 * MIB + 5)
    stream = client.put_object(bucket, "checkpoints/a b+ü")
    for at in range(0, len(body), MIB):
        stream.write(body[at:at + MIB])
    stream.close()
    assert b"".join(client.get_object(bucket, "checkpoints/a b+ü")) == body
    assert b"".join(client.get_object(bucket, "checkpoints/a b+ü", start=5 * MIB, end=5 * MIB + 9)) == body[5 * MIB:5 * MIB + 9]
    assert client.head_object(bucket, "checkpoints/a b+ü").size == len(body)
    keys = [entry.key for page in client.list_objects(bucket, "checkpoints/") for entry in page.object_info]
    assert keys == ["checkpoints/a b+ü"]
    client.put_object(bucket, "plain").close()  # its copy_object encodes no key
    client.copy_object(bucket, "plain", bucket, "copied")
    assert client.head_object(bucket, "copied").size == 0
    client.delete_object(bucket, "copied")
