import typing

Item = typing.TypeVar("Item", covariant=True)


class IterableDataset(typing.Generic[Item]):
    pass
