"""As much of torch as guidellm uses of it, to go through its data: the real one has gigabytes, and from
PyPI it brings CUDA. Seen by test_client_guidellm.py's programs alone, through PYTHONPATH."""

from . import utils  # noqa: F401


class Generator:
    def manual_seed(self, seed):
        return self


# datasets asks whether what it is given is one of these.
class Tensor:
    pass


class nn:
    class Module:
        pass
