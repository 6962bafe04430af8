import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Small layers on several threads mostly wait for each other, all the more beside other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
