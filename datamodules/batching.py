"""Batches of sequences of about equal length, by a budget of tokens."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from .tokenizer import PAD


class Examples(Dataset):
    """One split.

    Attributes:
        lengths: (examples, sequences of one): a translation has a source and a target, a row of a document is one.
    """

    lengths: np.ndarray

    def draw(self, seed: int, epoch: int) -> None:
        """Makes the examples anew for an epoch of training; most are what they are."""

    @abstractmethod
    def content(self) -> Iterator[np.ndarray]:
        """Everything that decides a number, for the fingerprint."""


class Pairs(Examples):
    """Encoded sentence pairs: target sequences begin with BOS, all end with EOS."""

    def __init__(self, sources: list[np.ndarray], targets: list[np.ndarray]) -> None:
        self.sources, self.targets = sources, targets
        # the target's length without BOS: as many tokens go into the decoder as come out of it
        self.lengths = np.array([[len(s), len(t) - 1] for s, t in zip(sources, targets, strict=True)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> tuple[int, np.ndarray, np.ndarray]:
        return index, self.sources[index], self.targets[index]

    def content(self) -> Iterator[np.ndarray]:
        yield from (*self.sources, *self.targets)


def collate(pairs: list[tuple[int, np.ndarray, np.ndarray]]) -> dict[str, torch.Tensor]:
    """{"source": (batch, source), "target": (batch, target + 1), "index": (batch,)}, padded at the end."""
    index, sources, targets = zip(*pairs, strict=True)
    return {"source": padded(sources), "target": padded(targets), "index": torch.tensor(index)}


def padded(sequences: Sequence[np.ndarray], filler: int = PAD) -> torch.Tensor:
    ids = np.full((len(sequences), max(map(len, sequences))), filler, dtype=np.int64)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(ids)


class TokenBudget(Sampler):
    """Batches whose slots, padding included, stay within `budget`.

    Sorted by length so that little is padded. With `shuffle` an epoch's order depends on (seed, epoch) alone: sentences
    of equal lengths are exchanged and batches shuffled, and the ranks share each batch, so that a step has the same
    examples however many they are. Without, each rank takes every world-th batch. Every sentence is read exactly once.

    Args:
        whole: leave the last batch of an epoch of training out where it is not full and another is: images are all as
            long, and a batch of one would be as much of a step as any.

    Attributes:
        epoch: set by Lightning before each epoch.
        read: (epoch, batches of it that were trained on before a resume): that epoch goes on after them.
    """

    def __init__(
        self,
        examples: Examples,
        *,
        budget: int,
        shuffle: bool,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        whole: bool = False,
    ) -> None:
        self.examples, self.budget, self.shuffle, self.whole = examples, budget, shuffle, whole
        self.seed, self.rank, self.world = seed, rank, world
        self.epoch, self.read = 0, (0, 0)
        self.sampler = self  # where Lightning looks for set_epoch
        self.made: tuple[int, list[np.ndarray]] | None = None
        self.first: int | None = None  # batches of epoch 0, which no later one exceeds: Lightning counts but once
        if (longest := int(self.lengths.sum(1).max(initial=0))) > budget:
            raise ValueError(f"one example has {longest} tokens: data.batch_tokens {budget} must be at least that")
        if len(examples) < world:
            raise ValueError(f"{len(examples)} examples cannot be shared by {world} ranks")

    @property
    def lengths(self) -> np.ndarray:
        return self.examples.lengths

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def batches(self) -> list[np.ndarray]:
        """This epoch's batches of all ranks."""
        epoch = self.epoch if self.shuffle else 0
        if self.made is None:
            self.made = 0, self.batches_of(0)
            self.first = len(self.made[1])
        if self.made[0] != epoch:
            self.made = epoch, self.batches_of(epoch)[: self.first]
        return self.made[1]

    def batches_of(self, epoch: int) -> list[np.ndarray]:
        """All that an epoch has; its examples are drawn first."""
        if self.shuffle:
            self.examples.draw(self.seed, epoch)
        rng = np.random.default_rng([self.seed, epoch])
        tie_break = rng.random(len(self.lengths)) if self.shuffle else np.arange(len(self.lengths))
        order = by_length(self.lengths, tie_break)
        batches = cut(order, self.lengths, self.budget)
        if self.whole and self.shuffle and len(batches) > 1 and self.lengths[batches[-1]].sum() < self.budget:
            batches.pop()
        if self.shuffle:
            batches = filled(batches, self.world)
            return [batches[i] for i in rng.permutation(len(batches))]
        # a rank without a batch would leave the others waiting
        return batches if len(batches) >= self.world else np.array_split(order, self.world)

    def of_this_rank(self) -> list[np.ndarray]:
        if self.shuffle:
            return [batch[self.rank :: self.world] for batch in self.batches()]
        return self.batches()[self.rank :: self.world]

    def __iter__(self) -> Iterator[list[int]]:
        epoch, read = self.read
        return iter([batch.tolist() for batch in self.of_this_rank()[read if epoch == self.epoch else 0 :]])

    def __len__(self) -> int:
        """Of epoch 0: where examples are drawn anew, another may have a few less."""
        self.batches()
        return self.first if self.shuffle else len(range(self.rank, self.first, self.world))

    def padding(self) -> float:
        """The share of this epoch's slots that hold padding."""
        slots = sum(len(b) * int(self.lengths[b].max(0).sum()) for b in self.batches())
        return 1 - sum(int(self.lengths[b].sum()) for b in self.batches()) / slots


def filled(batches: list[np.ndarray], world: int) -> list[np.ndarray]:
    """Each with an example for every rank at least: one with fewer takes the longest of the batch before it."""
    kept, batches = [], list(batches)
    while batches:
        batch = batches.pop()
        while len(batch) < world and batches:
            before = batches.pop()
            lacking = world - len(batch)
            batch = np.concatenate([before[-lacking:], batch])
            if len(before) > lacking:
                batches.append(before[:-lacking])
        kept.append(batch)
    if len(kept) > 1 and len(kept[-1]) < world:  # the very first has nothing before it
        short = kept.pop()
        kept[-1] = np.concatenate([short, kept[-1]])
    return kept[::-1]


def by_length(lengths: np.ndarray, tie_break: np.ndarray) -> np.ndarray:
    """Shortest first. Of pairs: sources of two lengths at a time, their targets rising and falling by turns, so that
    neighbours are alike in both (padding of Multi30k at 8,192 slots: 4.9 %; by source, then target: 8.0 %)."""
    if lengths.shape[1] == 1:
        return np.lexsort([tie_break, lengths[:, 0]])
    source, target = lengths.T
    turn = source // 2
    return np.lexsort([tie_break, source, np.where(turn % 2, -target, target), turn])


def cut(order: np.ndarray, lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """Consecutive pieces of `order`, each as long as its padded size permits."""
    pieces, start, longest = [], 0, [0] * lengths.shape[1]
    for end, example in enumerate(lengths[order].tolist()):
        grown = list(map(max, longest, example))
        if sum(grown) * (end + 1 - start) > budget:
            pieces.append(order[start:end])
            start, grown = end, example
        longest = grown
    return [*pieces, order[start:]] if len(order) else []


def loader(batches: TokenBudget, collate: Callable, *, workers: int = 0) -> DataLoader:
    """Reads the batches; its own generator keeps workers from touching the model's random numbers."""
    return DataLoader(
        batches.examples,
        batch_sampler=batches,
        collate_fn=collate,
        num_workers=workers,
        generator=torch.Generator().manual_seed(batches.seed),
        pin_memory=torch.cuda.is_available(),
        persistent_workers=False,
    )
