"""What is fast rather than clear. Each piece equals its clear form (tests/lit_modules/test_fast.py) and is here because
it was measured (`ablate bench`). On a CPU alone: elsewhere the clear forms run.

    LinearTokenLoss      the loss over the vocabulary, its logits never held whole      1.3 to 1.4 times a whole step
    dropout              random masks from 16 bits a number                             1.05 to 1.1 times a whole step
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS, PART = 256, 64  # rows of logits that are multiplied at once, and of those the rows that fit a cache in fp32


class LinearTokenLoss(torch.autograd.Function):
    """Σ of the smoothed and of the plain cross-entropy of x Eᵀ + b, with the gradients made on the way.

    Whole logits are 2,000 × 8,000 numbers a step, written and read some ten times, by far more than the caches hold.
    Here ROWS of them are made, turned into their own gradient in place, softmax(z) - (1 - ε) onehot - ε / V, multiplied
    back, and overwritten by the next. Products in the autocast type, sums in fp32, as in the clear form. Targets are
    real tokens; the second sum has no gradient. `loss.output_loss` is the way in.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, target, smoothing):  # noqa: ANN001, ANN205
        ctx.kinds = x.dtype, weight.dtype
        cast = torch.is_autocast_enabled(x.device.type)
        kind = torch.get_autocast_dtype(x.device.type) if cast else x.dtype
        wide = torch.promote_types(kind, torch.float32)
        x, matrix, vocabulary = x.to(kind), weight.to(kind), len(weight)
        logits, two = x.new_empty(ROWS, vocabulary), x.new_empty(2, PART, vocabulary, dtype=wide)
        of_x, of_weight, of_bias = torch.empty_like(x), weight.new_zeros(weight.shape, dtype=wide), None
        if bias is not None:
            of_bias = bias.new_zeros(vocabulary, dtype=wide)
        smoothed, nll = x.new_zeros(2, dtype=torch.float64)
        with torch.autocast(x.device.type, enabled=False):
            for start in range(0, len(x), ROWS):
                rows, wanted = x[start : start + ROWS], target[start : start + ROWS, None]
                of_logits = torch.mm(rows, matrix.T, out=logits[: len(rows)])
                if bias is not None:
                    of_logits += bias.to(kind)
                for of_part, word in zip(of_logits.split(PART), wanted.split(PART), strict=True):
                    z, p = two[:, : len(word)]
                    torch.softmax(z.copy_(of_part), dim=-1, out=p)
                    log_sum = z.amax(-1) - p.amax(-1).log()  # the largest p is 1 / Σ exp(z - max z)
                    plain = (log_sum - z.gather(1, word)[:, 0]).sum()
                    nll += plain
                    smoothed += (1 - smoothing) * plain + smoothing * (log_sum - z.mean(-1)).sum()
                    p.sub_(smoothing / vocabulary).scatter_add_(1, word, p.new_full(word.shape, smoothing - 1))
                    of_part.copy_(p)
                torch.mm(of_logits, matrix, out=of_x[start : start + ROWS])
                of_weight += of_logits.T @ rows
                if bias is not None:
                    of_bias += of_logits.sum(0, dtype=wide)
        ctx.save_for_backward(of_x, of_weight, of_bias)
        smoothed, nll = smoothed.to(wide), nll.to(wide)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx, factor, _):  # noqa: ANN001, ANN205
        of_x, of_weight, of_bias = ctx.saved_tensors
        of_input, of_matrix = (of_x * factor).to(ctx.kinds[0]), (of_weight * factor).to(ctx.kinds[1])
        return of_input, of_matrix, None if of_bias is None else of_bias * factor, None, None


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero with probability p, else x / (1 - p), in training; p is rounded to a multiple of 2⁻¹⁶.

    torch draws 64 bits a number where 16 will do: four numbers share one draw.
    """
    level = round(p * 2**16)
    if x.device.type != "cpu" or not 0 < level < 2**16:
        return F.dropout(x, p)
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= level - 2**15
    return x * kept.to(x.dtype).mul_(2**16 / (2**16 - level))


class Dropout(nn.Dropout):
    """`dropout` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x
