import typing

Item = typing.TypeVar("Item", covariant=True)


class DataLoader(typing.Generic[Item]):
    """Items one by one, in their order."""

    def __init__(self, dataset, collate_fn, **_):
        self.dataset, self.collate_fn = dataset, collate_fn

    def __iter__(self):
        return (self.collate_fn([item]) for item in self.dataset)
