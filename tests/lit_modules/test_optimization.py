"""The learning rate at a given optimiser step, by hand."""

import pytest
import torch

from lit_modules.optimization import Optim, optimizer_and_schedule


def rates(optim, total, steps):
    made = optimizer_and_schedule([torch.nn.Parameter(torch.zeros(2))], optim, total)
    adam, schedule, seen = made["optimizer"], made["lr_scheduler"]["scheduler"], []
    for _ in range(steps):
        seen.append(adam.param_groups[0]["lr"])
        adam.step()
        schedule.step()
    assert made["lr_scheduler"]["interval"] == "step"
    return seen


def test_the_papers_schedule():
    """Equation 3: d_model^-0.5 · min(t^-0.5, t · warmup^-1.5); the peak is (d_model · warmup)^-0.5."""
    d_model, warmup = 512, 4000
    seen = rates(Optim(lr=(d_model * warmup) ** -0.5, warmup_steps=warmup), 10000, 9000)
    for t in (1, 100, 3999, 4000, 4001, 8000):
        assert seen[t - 1] == pytest.approx(d_model**-0.5 * min(t**-0.5, t * warmup**-1.5), rel=1e-9)
    assert max(seen) == pytest.approx(6.98771e-4, rel=1e-5) == seen[3999]


def test_the_linear_schedule():
    seen = rates(Optim(lr=1.0, warmup_steps=4, schedule="linear"), 10, 10)
    assert seen == pytest.approx([1 / 4, 2 / 4, 3 / 4, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])


@pytest.mark.parametrize("schedule, first", [("inverse_sqrt", 1.0), ("linear", 0.9)])
def test_no_warmup_starts_at_the_peak(schedule, first):
    assert rates(Optim(lr=1.0, warmup_steps=0, schedule=schedule), 10, 1) == pytest.approx([first])


def test_adam_has_the_papers_constants():
    adam = optimizer_and_schedule([torch.nn.Parameter(torch.zeros(1))], Optim(lr=1.0, warmup_steps=1), 5)["optimizer"]
    group = adam.param_groups[0]
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.98), 1e-9, 0.0)


@pytest.mark.parametrize("wrong", [{"lr": 0.0, "warmup_steps": 1}, {"lr": 1.0, "warmup_steps": -1}])
def test_impossible_values_are_refused(wrong):
    with pytest.raises(ValueError, match="must be positive"):
        Optim(**wrong)
