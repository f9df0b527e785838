"""Parameters, gradients and the optimiser's state divided among the ranks (Rajbhandari et al. 2020, ZeRO), by FSDP2."""

from collections.abc import Iterable

from lightning import LightningModule
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

THROUGH = ("training_step", "validation_step", "test_step", "diagnose")  # by these Lightning and we enter the model


def shard(model: LightningModule, layers: Iterable[nn.Module], mesh: DeviceMesh) -> None:
    """Each layer is gathered when it is used and divided again after; what lies outside them, for a whole step."""
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for name in THROUGH:
        register_fsdp_forward_method(model, name)


def keep_whole(model: nn.Module) -> None:
    """Until `divide`: ranks may now use the layers at their own pace, as sentences of unequal length are decoded."""
    for module in sharded(model):
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()


def divide(model: nn.Module) -> None:
    for module in sharded(model):
        module.set_reshard_after_forward(module is not model, recurse=False)
        module.reshard()


def sharded(model: nn.Module) -> list[FSDPModule]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def own_part(tensor: Tensor) -> Tensor:
    """What of a divided tensor lies on this rank; any other tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """A divided tensor put together from all ranks; any other tensor itself."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
