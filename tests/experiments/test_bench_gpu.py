"""The GPU checks, carried out on a CPU as far as they go there."""

import json

import pytest
import torch

from experiments.bench import gpu
from experiments.launch.question import BadInput


def test_the_checks_run_and_are_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    held = gpu.main("cpu", gpu.SMALL, rows=2, results=tmp_path / "gpu.json")
    kept = json.loads((tmp_path / "gpu.json").read_text())
    parity = [check for check in kept["checks"] if "explicit" in check["check"]]
    assert len(parity) == 6 and all(check["holds"] for check in parity)
    assert [check["holds"] for check in kept["checks"] if "of their own" in check["check"]] == [None]
    assert set(kept["speed"]) == {"translation", "bert", "vit"} and kept["peak_flops"] > 0
    assert all(found["per_second"] > 0 and found["share_of_peak"] > 0 for found in kept["speed"].values())
    assert held == all(check["holds"] is not False for check in kept["checks"])
    assert "share of" in capsys.readouterr().out


def test_a_model_that_attends_otherwise_is_found_out(monkeypatch):
    from lit_modules.components import attention

    real = attention.attend_fused
    monkeypatch.setattr(attention, "attend_fused", lambda q, k, v, **more: real(q, k, 1.01 * v, **more))
    in_fp32 = [check["holds"] for check in gpu.parity("cpu", compiled=False) if "float32" in check["check"]]
    assert in_fp32 == [False] * 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so():
    with pytest.raises(BadInput, match="needs a GPU, and torch sees none here"):
        gpu.main()
