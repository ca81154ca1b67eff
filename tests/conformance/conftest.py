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
