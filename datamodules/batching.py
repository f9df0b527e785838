"""Batches of sequences of about equal length, by a budget of tokens."""

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from .tokenizer import PAD


class Pairs(Dataset):
    """Encoded sentence pairs: target sequences begin with BOS, all end with EOS."""

    def __init__(self, sources: list[np.ndarray], targets: list[np.ndarray]) -> None:
        self.sources, self.targets = sources, targets
        # the target's length without BOS: as many tokens go into the decoder as come out of it
        self.lengths = np.array([[len(s), len(t) - 1] for s, t in zip(sources, targets, strict=True)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> tuple[int, np.ndarray, np.ndarray]:
        return index, self.sources[index], self.targets[index]


def collate(pairs: list[tuple[int, np.ndarray, np.ndarray]]) -> dict[str, torch.Tensor]:
    """{"source": (batch, source), "target": (batch, target + 1), "index": (batch,)}, padded at the end."""
    index, sources, targets = zip(*pairs, strict=True)
    return {"source": padded(sources), "target": padded(targets), "index": torch.tensor(index)}


def padded(sequences: tuple[np.ndarray, ...]) -> torch.Tensor:
    ids = np.full((len(sequences), max(map(len, sequences))), PAD, dtype=np.int64)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(ids)


class TokenBudget(Sampler):
    """Batches whose slots, source and target with their padding, stay within `budget`.

    Sorted by length so that little is padded. With `shuffle` an epoch's order depends on (seed, epoch) alone: sentences
    of equal lengths are exchanged and batches shuffled. Each rank takes every world-th batch; in training the last
    incomplete round is left out so that all ranks step together, in validation every sentence is read exactly once.

    Attributes:
        epoch: set by Lightning before each epoch.
        read: (epoch, batches of it that were trained on before a resume): that epoch goes on after them.
    """

    def __init__(
        self, lengths: np.ndarray, *, budget: int, shuffle: bool, seed: int = 0, rank: int = 0, world: int = 1
    ) -> None:
        if (longest := int(lengths.sum(1).max(initial=0))) > budget:
            raise ValueError(f"one pair has {longest} tokens: data.batch_tokens {budget} must be at least that")
        if len(lengths) < world:
            raise ValueError(f"{len(lengths)} sentences cannot be shared by {world} ranks")
        self.lengths, self.budget, self.shuffle = lengths, budget, shuffle
        self.seed, self.rank, self.world = seed, rank, world
        self.epoch, self.read = 0, (0, 0)
        self.sampler = self  # where Lightning looks for set_epoch
        self.made: tuple[int, list[np.ndarray]] | None = None

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def batches(self) -> list[np.ndarray]:
        """This epoch's batches of all ranks."""
        epoch = self.epoch if self.shuffle else 0
        if self.made is None or self.made[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch])
            tie_break = rng.random(len(self.lengths)) if self.shuffle else np.arange(len(self.lengths))
            source, target = self.lengths.T
            order = np.lexsort([tie_break, target, source])
            batches = cut(order, self.lengths, self.budget)
            if len(batches) < self.world:  # a rank without a batch would leave the others waiting
                batches = np.array_split(order, self.world)
            if self.shuffle:
                batches = [batches[i] for i in rng.permutation(len(batches))]
                batches = batches[: len(batches) // self.world * self.world]
            self.made = epoch, batches
        return self.made[1]

    def __iter__(self) -> Iterator[list[int]]:
        mine = self.batches()[self.rank :: self.world]
        epoch, read = self.read
        return iter([batch.tolist() for batch in mine[read if epoch == self.epoch else 0 :]])

    def __len__(self) -> int:
        return len(self.batches()[self.rank :: self.world])

    def padding(self) -> float:
        """The share of this epoch's slots that hold padding."""
        slots = sum(len(b) * int(self.lengths[b].max(0).sum()) for b in self.batches())
        return 1 - sum(int(self.lengths[b].sum()) for b in self.batches()) / slots


def cut(order: np.ndarray, lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """Consecutive pieces of `order`, each as long as its padded size permits."""
    pieces, start, longest = [], 0, (0, 0)
    for end, (source, target) in enumerate(lengths[order].tolist()):
        grown = max(longest[0], source), max(longest[1], target)
        if sum(grown) * (end + 1 - start) > budget:
            pieces.append(order[start:end])
            start, grown = end, (source, target)
        longest = grown
    return [*pieces, order[start:]] if len(order) else []


def loader(pairs: Pairs, batches: TokenBudget, *, workers: int = 0) -> DataLoader:
    """Reads the batches; its own generator keeps workers from touching the model's random numbers."""
    return DataLoader(
        pairs,
        batch_sampler=batches,
        collate_fn=collate,
        num_workers=workers,
        generator=torch.Generator().manual_seed(batches.seed),
        pin_memory=torch.cuda.is_available(),
        persistent_workers=False,
    )
