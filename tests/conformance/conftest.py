import os

import pytest

from server import ATELIER, Server


@pytest.fixture(scope="session")
def atelier_server(tmp_path_factory):
    """A running server with a data folder of its own, whose environment this process takes over."""
    assert ATELIER.exists(), f"{ATELIER} is not built: run make"
    server = Server(tmp_path_factory.mktemp("atelier") / "data").start()
    before, ours = dict(os.environ), server.environment()
    os.environ.clear()
    os.environ.update(ours)
    yield server
    os.environ.clear()
    os.environ.update(before)
    server.stop()


@pytest.fixture(scope="session")
def pictures(atelier_server):
    """Some hundred pictures of Fashion-MNIST in class folders; returns their s3:// prefix."""
    prefix = "s3://pictures/fashion-mnist"
    atelier_server.run("s3", "mb", "s3://pictures", check=False)
    atelier_server.run("dataset", "import", "fashion-mnist", prefix, "--limit", "600",
                       "--validation", "200")
    return prefix


@pytest.fixture(scope="session")
def sdk_config(atelier_server, tmp_path_factory):
    """What `atelier init` writes for the SDK, in a place of the test's own."""
    folder = tmp_path_factory.mktemp("sdk-config")
    atelier_server.run("init", "--sdk-config", str(folder / "config.yaml"),
                       "--metadata", str(folder / "resource-metadata.json"))
    os.environ["SAGEMAKER_USER_CONFIG_OVERRIDE"] = str(folder / "config.yaml")
    return folder
