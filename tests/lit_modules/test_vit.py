"""ViT: patches, positions, parity with timm, weights at another size."""

from dataclasses import replace

import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from lit_modules.choices import Arch
from lit_modules.components.patches import (
    IMAGE_POSITION,
    LearnedPosition2d,
    PatchEmbedding,
    SinusoidalPosition2d,
    flattened,
)
from lit_modules.optimization import Optim
from lit_modules.vit import Vit
from lit_modules.vit_weights import from_timm, resampled

ARCH = Arch(d_model=48, n_heads=3, n_layers=2, d_ff=96, norm="pre", activation="gelu", dropout=0.0)
OPTIM = Optim(lr=1e-3, warmup_steps=0)


def vit(**more):
    sizes = {"arch": ARCH, "optim": OPTIM, "n_labels": 7, "image_size": 16, "channels": 3, "patch_size": 4} | more
    return Vit(**sizes)


def theirs(**more):
    """timm's ViT of the same size, with weights drawn anew so that none is zero."""
    torch.manual_seed(1)
    model = timm.models.VisionTransformer(
        **{"img_size": 16, "patch_size": 4, "embed_dim": 48, "depth": 2, "num_heads": 3, "mlp_ratio": 2, "num_classes": 7} | more
    )  # fmt: skip
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def test_a_patch_is_cut_channel_by_channel_row_by_row():
    image = torch.arange(2 * 4 * 4.0).view(1, 2, 4, 4)
    cut = flattened(image, 2)
    assert cut.shape == (1, 4, 8)
    assert cut[0, 0].tolist() == [0, 1, 4, 5, 16, 17, 20, 21]
    assert cut[0, 1].tolist() == [2, 3, 6, 7, 18, 19, 22, 23]
    assert cut[0, 2].tolist() == [8, 9, 12, 13, 24, 25, 28, 29]


@pytest.mark.parametrize("patch_size", [1, 2, 4, 8])
def test_flatten_and_project_is_a_convolution(patch_size):
    embed = PatchEmbedding(image_size=8, channels=3, patch_size=patch_size, d_model=10)
    images = torch.randn(5, 3, 8, 8)
    kernels = embed.project.weight.view(10, 3, patch_size, patch_size)
    by_convolution = F.conv2d(images, kernels, embed.project.bias, stride=patch_size).flatten(2).transpose(1, 2)
    torch.testing.assert_close(embed(images), by_convolution, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("patch_size", [3, 16, 0])
def test_a_patch_that_does_not_divide_the_image_is_refused_naming_both(patch_size):
    with pytest.raises(ValueError, match=f"patch_size {patch_size} does not divide an image of 8 × 8"):
        PatchEmbedding(image_size=8, channels=1, patch_size=patch_size, d_model=4)


def test_two_dimensional_positions_by_hand():
    sinusoidal = SinusoidalPosition2d(8, 3)(torch.zeros(1, 9, 8))[0].view(3, 3, 8)
    for row, column in ((0, 0), (1, 2), (2, 1)):
        half = [torch.tensor(float(place)) for place in (row, column)]
        wanted = torch.stack([f(p / 10000**e) for p in half for e in (0, 0.5) for f in (torch.sin, torch.cos)])
        torch.testing.assert_close(sinusoidal[row, column], wanted, rtol=1e-6, atol=1e-6)
    learned = LearnedPosition2d(4, 3)
    table = learned(torch.zeros(1, 9, 4))[0].view(3, 3, 4)
    assert torch.equal(table[2, 1], torch.cat([learned.row[2], learned.column[1]]))
    with pytest.raises(ValueError, match="d_model 5 is odd"):
        LearnedPosition2d(5, 3)
    with pytest.raises(ValueError, match="that 4 divides, not 6"):
        SinusoidalPosition2d(6, 3)


@pytest.mark.parametrize("position", IMAGE_POSITION)
def test_without_positions_alone_patches_may_change_places(position):
    model = vit(position=position, pooling="mean").eval()
    images = torch.randn(2, 3, 16, 16)
    quarters = torch.cat([images[:, :, 8:], images[:, :, :8]], dim=2)
    same = torch.allclose(model(images), model(quarters), atol=1e-5)
    assert same == (position == "none")


CASES = {
    "cls": ({"pooling": "cls"}, {}),
    "mean": ({"pooling": "mean"}, {"global_pool": "avg", "class_token": False, "fc_norm": False}),
}


@pytest.mark.parametrize("case", CASES)
def test_parity_with_timm_logits_loss_and_gradients(case):
    of_ours, of_theirs = CASES[case]
    peer, ours = theirs(**of_theirs), vit(**of_ours)
    ours.load_state_dict(from_timm(peer.state_dict()))
    images, label = torch.randn(5, 3, 16, 16), F.one_hot(torch.tensor([0, 3, 6, 1, 1]), 7).float()
    logits, wanted = ours(images), peer(images)
    torch.testing.assert_close(logits, wanted, rtol=1e-5, atol=1e-5)
    loss = F.cross_entropy(wanted, label, label_smoothing=0.1, reduction="sum")
    found = ours.loss(logits, label, 0.1)
    torch.testing.assert_close(found.smoothed, loss, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(found.nll, F.cross_entropy(wanted, label, reduction="sum"), rtol=1e-6, atol=1e-5)
    loss.backward()
    found.smoothed.backward()
    gradients = {name: p.grad for name, p in peer.named_parameters()}
    if case == "cls":  # our one vector has the gradient of each of their two
        gradients["cls_token"] = torch.zeros_like(gradients["cls_token"])
    for name, gradient in from_timm(gradients).items():
        torch.testing.assert_close(ours.get_parameter(name).grad, gradient, rtol=1e-4, atol=1e-4, msg=name)


@pytest.mark.parametrize("kind", ["safetensors", "pth", "folder"])
def test_timms_files_are_read(kind, tmp_path):
    peer, file = theirs(), tmp_path / f"weights.{kind}"
    if kind == "folder":
        file = tmp_path
        save_file(peer.state_dict(), tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text("{}")
    elif kind == "pth":
        torch.save(peer.state_dict(), file)
    else:
        save_file(peer.state_dict(), file)
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(vit(checkpoint=str(file))(images), peer(images), rtol=1e-5, atol=1e-5)


def test_at_another_image_size_the_grid_is_interpolated_and_the_class_token_stays(tmp_path):
    peer, file = theirs(), tmp_path / "weights.safetensors"
    save_file(peer.state_dict(), file)
    own = vit(checkpoint=str(file))
    larger = vit(checkpoint=str(file), image_size=24)
    assert torch.equal(larger.network.pooling.vector, own.network.pooling.vector)
    other = theirs(img_size=24)
    other.load_state_dict(
        peer.state_dict()
        | {"pos_embed": timm.layers.resample_abs_pos_embed(peer.pos_embed.data, [6, 6], num_prefix_tokens=1)}
    )
    images = torch.randn(2, 3, 24, 24)
    torch.testing.assert_close(larger(images), other(images), rtol=1e-5, atol=1e-5)
    constant = torch.full((16, 5), 0.7)
    torch.testing.assert_close(resampled(constant, 36), torch.full((36, 5), 0.7))
    assert torch.equal(resampled(own.network.position.table, 16), own.network.position.table)


def test_a_head_of_other_classes_starts_anew_and_says_so(tmp_path, capsys):
    save_file(theirs().state_dict(), tmp_path / "weights.safetensors")
    model = vit(checkpoint=str(tmp_path / "weights.safetensors"), n_labels=3)
    assert model(torch.randn(1, 3, 16, 16)).shape == (1, 3)
    assert "another number of classes" in capsys.readouterr().err


WRONG = {
    "another width": ({"embed_dim": 60}, {}, "is .*60.* in the file, .*48"),
    "more layers": ({"depth": 3}, {}, "encoder.layers.2.* is nowhere in this model"),
    "registers": ({"reg_tokens": 2}, {}, "is nowhere in this model"),
    "another patch": ({"patch_size": 8}, {}, r"project.weight is \(48, 192\) in the file, \(48, 48\)"),
    "other positions": ({}, {"position": "learned_2d"}, "network.position"),
    "no class token": ({"global_pool": "avg", "class_token": False}, {}, "not in the file|nowhere"),
}


@pytest.mark.parametrize("case", WRONG)
def test_weights_of_another_model_are_refused(case, tmp_path):
    of_theirs, of_ours, message = WRONG[case]
    save_file(theirs(**of_theirs).state_dict(), tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match=message):
        vit(checkpoint=str(tmp_path / "weights.safetensors"), **of_ours)


def test_what_is_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="no checkpoint 'nowhere'"):
        vit(checkpoint="nowhere")
    for name in ("junk.pth", "junk.safetensors"):
        (tmp_path / name).write_bytes(b"junk")
        with pytest.raises(ValueError, match=f"{name} cannot be read as weights"):
            vit(checkpoint=str(tmp_path / name))


@pytest.mark.parametrize("key, other", [("n_heads", 6), ("activation", "relu"), ("score_divisor", "one")])
def test_our_own_checkpoint_of_other_choices_is_refused_where_shapes_would_not_tell(key, other, tmp_path):
    made = vit()
    torch.save({"state_dict": made.state_dict(), "hyper_parameters": dict(made.hparams)}, tmp_path / "best.ckpt")
    vit(checkpoint=str(tmp_path / "best.ckpt"))
    with pytest.raises(ValueError, match=f"was made with {key} .*, this model with {other}"):
        vit(checkpoint=str(tmp_path / "best.ckpt"), arch=replace(ARCH, **{key: other}))


def test_deits_form_and_a_class_token_without_a_position(tmp_path):
    peer = theirs(no_embed_class=True)
    torch.save({"model": peer.state_dict()}, tmp_path / "deit.pth")
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(vit(checkpoint=str(tmp_path / "deit.pth"))(images), peer(images), rtol=1e-5, atol=1e-5)


def test_the_residual_network_takes_small_images_and_has_four_stages():
    model = vit(network="resnet", channels=1)
    assert model(torch.randn(2, 1, 8, 8)).shape == (2, 7)
    assert list(model.layers()) == [f"stage.{i}" for i in range(4)]
    assert model.diagnose({"image": torch.randn(2, 1, 8, 8)}) == {}
    assert model.network.stages(torch.randn(2, 1, 32, 32)).shape == (2, 48)
    widths = [block.conv1.in_channels for layer in model.layers().values() for block in layer[:1]]
    assert (model.network.stages.conv1.out_channels, widths) == (6, [6, 6, 12, 24])


def test_the_diagnostics_of_uniform_attention():
    model = vit()
    for layer in model.network.encoder.layers:
        layer.self_attention.query_key_value.weight.data.zero_()
    found = model.diagnose({"image": torch.randn(2, 3, 16, 16)})
    assert found["encoder.0.self_attention/entropy"] == pytest.approx(torch.tensor(17.0).log().item(), rel=1e-5)
    assert found["encoder.1.self_attention/largest_weight"] == pytest.approx(1 / 17, rel=1e-5)
