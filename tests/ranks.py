"""Run by test_ranks.py as a program of its own, once a rank: `python ranks.py WHAT RANKS FOLDER`."""

import json
import sys
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.strategies import ModelParallelStrategy

from datamodules.tokenizer import BOS, EOS, PAD
from datamodules.translation import ToyTranslation
from lit_modules.choices import Arch
from lit_modules.optimization import Optim
from lit_modules.sharding import own_part
from lit_modules.translation import Translation

ARCH = Arch(d_model=16, n_heads=2, n_layers=1, d_ff=32, dropout=0.0)


def trainer(ranks: int, strategy: str | ModelParallelStrategy = "ddp") -> L.Trainer:
    return L.Trainer(
        accelerator="cpu", devices=ranks, strategy=strategy if ranks > 1 else "auto", logger=False, max_steps=1,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
    )  # fmt: skip


def model(vocab_size: int) -> Translation:
    torch.manual_seed(0)
    return Translation(arch=ARCH, optim=Optim(lr=0.01, warmup_steps=1), vocab_size=vocab_size)


class UnequalShares(L.LightningDataModule):
    """Eight sentences of unequal length: all on one rank, or five and three."""

    longest, test_splits = 9, ["test"]

    def train_dataloader(self):
        generator = torch.Generator().manual_seed(3)
        batch = {
            "source": torch.randint(4, 20, (8, 6), generator=generator),
            "target": torch.full((8, 9), PAD),
            "index": torch.arange(8),
        }
        for row, length in zip(batch["target"], (2, 7, 3, 6, 4, 1, 5, 2), strict=True):
            row[: length + 2] = torch.tensor([BOS, *torch.randint(4, 20, (length,), generator=generator).tolist(), EOS])
        shares = [slice(0, 5), slice(5, 8)] if self.trainer.world_size == 2 else [slice(0, 8)]
        share = shares[self.trainer.global_rank]
        return torch.utils.data.DataLoader([{k: v[share] for k, v in batch.items()}], batch_size=None)


def gradients(ranks: int, folder: Path) -> None:
    """The gradients that the optimiser sees."""
    built, kept = model(20), {}
    step = built.on_before_optimizer_step

    def keep(optimizer):
        step(optimizer)
        kept.update({name: p.grad.clone() for name, p in built.named_parameters()})

    built.on_before_optimizer_step = keep
    one = trainer(ranks)
    one.fit(built, datamodule=UnequalShares())
    if one.is_global_zero:
        torch.save({"gradients": kept, "tokens": built.tokens_seen}, folder / f"gradients-{ranks}.pt")


def evaluation(ranks: int, folder: Path) -> None:
    """Every metric of test and long, on an odd number of sentences."""
    data = ToyTranslation(train_pairs=300, eval_pairs=37, batch_tokens=150)
    one = trainer(ranks)
    one.test(model(data.vocab_size), datamodule=data, verbose=False)
    if one.is_global_zero:
        metrics = {name: float(value) for name, value in one.callback_metrics.items()}
        (folder / f"evaluation-{ranks}.json").write_text(json.dumps(metrics))


def halves(ranks: int, folder: Path) -> None:
    """How many numbers of a divided model, and of Adam's first moment, lie on each rank."""
    data = ToyTranslation(train_pairs=60, eval_pairs=9, batch_tokens=150)
    built, found = model(data.vocab_size), {}
    found["whole"] = sum(p.numel() for p in built.parameters())
    evaluate = built.evaluate

    def counted(batch: dict, split: str) -> None:
        found["in_evaluation"] = sum(own_part(p).numel() for p in built.parameters())
        evaluate(batch, split)

    def divided_again() -> None:
        found["after_evaluation"] = sum(own_part(p).numel() for p in built.parameters())

    built.evaluate, built.on_train_end = counted, divided_again
    strategy = ModelParallelStrategy(
        data_parallel_size=ranks, tensor_parallel_size=1, save_distributed_checkpoint=False
    )
    one = trainer(ranks, strategy=strategy)
    one.fit(built, datamodule=data)
    found["exp_avg"] = sum(own_part(state["exp_avg"]).numel() for state in one.optimizers[0].state.values())
    (folder / f"halves-{one.global_rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    what, ranks, folder = sys.argv[1:]
    {"gradients": gradients, "evaluation": evaluation, "halves": halves}[what](int(ranks), Path(folder))
