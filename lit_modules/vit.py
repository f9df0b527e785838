"""The Vision Transformer: an image's patches are its words (Dosovitskiy et al. 2021), and a CNN to hold beside it."""

from dataclasses import asdict
from typing import Literal

import lightning as L
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .base import AblationModule, Picture, of_positions
from .choices import Arch
from .components import masks
from .components.attention import attention_weights, projection
from .components.diagnostics import attention_statistics, position_similarity
from .components.fast import Dropout
from .components.loss import TokenLoss
from .components.patches import IMAGE_POSITION, POOLING, Images, PatchEmbedding
from .components.stack import Encoder
from .optimization import Optim
from .vit_weights import start_from

Summary = Float[Tensor, "batch d_model"]
EPS = 1e-6  # of ViT's layer norms, in the authors' code


class VitNetwork(nn.Module):
    """Equations 1 to 4: one vector for each image.

    Args:
        arch: the shared choices.
        image_size, channels: of the square images.
        patch_size: pixels of a patch's side; N = (image_size / patch_size)² patches are read.
        position: how a patch's place enters: learned_1d, learned_2d, sinusoidal_2d, or none.
        pooling: what stands for the image: cls or mean.
    """

    def __init__(
        self, *, arch: Arch, image_size: int, channels: int, patch_size: int, position: str, pooling: str
    ) -> None:
        super().__init__()
        self.patches = PatchEmbedding(
            image_size=image_size, channels=channels, patch_size=patch_size, d_model=arch.d_model
        )
        self.position = IMAGE_POSITION[position](arch.d_model, self.patches.grid)
        self.pooling = POOLING[pooling](arch.d_model)
        self.dropout = Dropout(arch.dropout_of("embeddings"))
        self.encoder = Encoder(arch)
        self.width = arch.d_model
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = EPS

    def forward(self, images: Images) -> Summary:
        x = self.pooling(self.position(self.patches(images)))
        return self.pooling.summary(self.encoder(self.dropout(x), masks.everything()))

    def over_patches(self, weights: Float[Tensor, "*head token token"]) -> Float[Tensor, "*head row column"]:
        """What the summary attends to, as an image: the class token's row, or the mean over all patches."""
        side = self.patches.grid
        of_summary = self.pooling.attends(weights)[..., -(side**2) :]
        return of_summary.unflatten(-1, (side, side))

    def position_similarity(self) -> Float[Tensor, "patch patch"] | None:
        places = torch.zeros(self.patches.grid**2, self.width, device=self.patches.project.weight.device)
        return position_similarity(self.position, places)

    def layers(self) -> dict[str, nn.Module]:
        return {f"encoder.{i}": layer for i, layer in enumerate(self.encoder.layers)}

    def sizes(self) -> dict[str, int]:
        """N, and the one more that a class token is."""
        return {"tokens_per_image": self.pooling.length(self.patches.grid**2)}


class ResNet(nn.Module):
    """What ViT is held against: timm's residual network of four stages of two blocks each (He et al. 2016), for small
    images: the first convolution is 3 × 3 with stride 1, without pooling after it.

    Args:
        arch: d_model is the width of the last stage, each earlier one half of the next.
        channels: of the images, of any size.
    """

    def __init__(self, *, arch: Arch, channels: int, **of_vit: object) -> None:
        from timm.models.resnet import BasicBlock
        from timm.models.resnet import ResNet as Timm

        super().__init__()
        self.width = arch.d_model
        stages = tuple(arch.d_model // 2**i for i in (3, 2, 1, 0))
        self.stages = Timm(  # a deep stem is the one whose width can be chosen
            BasicBlock, [2, 2, 2, 2], num_classes=0, channels=stages, stem_type="deep", stem_width=stages[0] // 2
        )
        self.stages.conv1 = nn.Conv2d(channels, stages[0], 3, padding=1, bias=False)
        self.stages.maxpool = nn.Identity()

    def forward(self, images: Images) -> Summary:
        return self.stages(images)

    def layers(self) -> dict[str, nn.Module]:
        return {f"stage.{i}": getattr(self.stages, f"layer{i + 1}") for i in range(4)}

    def sizes(self) -> dict[str, int]:
        return {}


NETWORK = {"vit": VitNetwork, "resnet": ResNet}


class Vit(AblationModule):
    """Image classification.

    Args:
        arch, patch_size, position, pooling: the network's, see `VitNetwork`.
        optim: optimiser and schedule.
        n_labels, image_size, channels: from the datamodule.
        network: vit, or resnet: a CNN in its place, which takes of the above d_model alone.
        label_smoothing: ε, in training only.
        checkpoint: weights to start from: a run's folder, a .ckpt file of ours, or timm's weights (.safetensors, .pth,
            or a folder with model.safetensors). The position grid is interpolated to this image's; a head for another
            number of classes is left out.

    Logged at validation and test, under the split's name: nll (nats per image), accuracy and top5 (percent of the
    images whose class is the likeliest one, and one of the five likeliest).
    """

    unit = "images"

    def __init__(
        self,
        arch: Arch,
        optim: Optim,
        n_labels: int,
        image_size: int,
        channels: int,
        patch_size: int = 16,
        position: Literal["learned_1d", "learned_2d", "sinusoidal_2d", "none"] = "learned_1d",
        pooling: Literal["cls", "mean"] = "cls",
        network: Literal["vit", "resnet"] = "vit",
        label_smoothing: float = 0.0,
        checkpoint: str | None = None,
    ) -> None:
        super().__init__(optim)
        sizes = {"image_size": image_size, "channels": channels, "patch_size": patch_size, "position": position,
                 "pooling": pooling}  # fmt: skip
        self.save_hyperparameters(
            {"arch": asdict(arch), "optim": asdict(optim), "n_labels": n_labels, **sizes, "network": network,
             "label_smoothing": label_smoothing, "checkpoint": checkpoint},
            logger=False,
        )  # fmt: skip
        self.network = NETWORK[network](arch=arch, **sizes)
        self.head = projection(self.network.width, n_labels)
        self.label_smoothing = label_smoothing
        self.findings |= self.network.sizes()
        if checkpoint:
            start_from(checkpoint, self)

    def check_data(self, data: L.LightningDataModule) -> None:
        """Nothing can be wrong: sizes, channels and classes are the data's own."""

    @staticmethod
    def metric_names(data: L.LightningDataModule) -> list[str]:
        return [f"{split}/{name}" for split in ("valid", *data.test_splits) for name in ("nll", "accuracy", "top5")]

    # ---- training

    def forward(self, images: Images) -> Float[Tensor, "batch label"]:
        return self.head(self.network(images))

    def training_loss(self, batch: dict[str, Tensor]) -> TokenLoss:
        """Sums over the images; a label is a distribution where images are mixed."""
        return self.loss(self(batch["image"]), batch["label"], self.label_smoothing)

    @staticmethod
    def loss(logits: Float[Tensor, "batch label"], label: Float[Tensor, "batch label"], smoothing: float) -> TokenLoss:
        logits = logits.float()
        smoothed = F.cross_entropy(logits, label, label_smoothing=smoothing, reduction="sum")
        nll = F.cross_entropy(logits, label, reduction="sum").detach() if smoothing else smoothed.detach()
        return TokenLoss(smoothed, nll, torch.tensor(len(logits), device=logits.device))

    def layers(self) -> dict[str, nn.Module]:
        return self.network.layers()

    def batch_tokens(self, batch: dict[str, Tensor]) -> Tensor:
        """Images: what they are cut into is each arm's own business, and `flops_per_token` are of one image."""
        return torch.tensor(len(batch["image"]), device=batch["image"].device)

    # ---- validation and test

    def nothing_found(self) -> list[float]:
        """nll, images, those whose class is the likeliest one, those whose class is one of the five likeliest."""
        return [0.0] * 4

    def evaluate(self, batch: dict[str, Tensor], split: str) -> None:
        logits, label = self(batch["image"]), batch["label"].argmax(1)
        loss = self.loss(logits, batch["label"], 0.0)
        best = logits.topk(min(5, logits.shape[1]), dim=1).indices == label[:, None]
        of_batch = [loss.nll, loss.tokens, best[:, 0].sum(), best.sum()]
        self.found[split] = [sum_ + float(value) for sum_, value in zip(self.found[split], of_batch, strict=True)]

    def report(self) -> None:
        """Metrics of the whole split from sums over all ranks: each image counts once."""
        for split, sums in self.found.items():
            nll, images, right, among_five = map(sum, zip(*self.of_all_ranks(sums), strict=True))
            if images:
                metrics = {"nll": nll / images, "accuracy": 100 * right / images, "top5": 100 * among_five / images}
                self.log_evaluation({f"{split}/{name}": value for name, value in metrics.items()})

    # ---- why

    def pictures(self, batch: dict[str, Tensor]) -> list[Picture]:
        """What the summary attends to, layer by layer, mean over heads; the similarity of the patches' positions."""
        with attention_weights(self.network) as seen:
            self.network(batch["image"])
        drawn = [
            Picture(name.replace("layers.", ""), self.network.over_patches(attended.weights[0].float().mean(0)))
            for name, attended in seen.items()
        ]
        return drawn + of_positions(self.network.position_similarity()) if seen else []

    def diagnose(self, batch: dict[str, Tensor]) -> dict[str, float]:
        """`attention_statistics` of every layer."""
        with attention_weights(self.network) as seen:
            self.network(batch["image"])
        every = {name: torch.ones(attended.weights.shape[::2], dtype=torch.bool, device=attended.weights.device)
                 for name, attended in seen.items()}  # fmt: skip
        return {
            f"{name.replace('layers.', '')}/{statistic}": value
            for name, attended in seen.items()
            for statistic, value in attention_statistics(attended, every[name]).items()
        }
