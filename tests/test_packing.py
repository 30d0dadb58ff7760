"""Float32 convolution weights stay as they are on processors for which vLLM packs them."""

import pytest
import torch

from harness import vllm_names
from harness.cpu import packing


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """A processor with AMX, as far as vLLM can see; the dtypes of the weights that it packs."""
    from vllm.model_executor.layers import utils

    seen: list[torch.dtype] = []

    def pack(weight: torch.Tensor) -> torch.Tensor:
        seen.append(weight.dtype)
        return weight

    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(utils.ops, "causal_conv1d_weight_pack", pack, raising=False)
    return seen


def layer(shape: tuple[int, ...], dtype: torch.dtype) -> torch.nn.Module:
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.ones(shape, dtype=dtype), requires_grad=False)
    return module


def dispatch(module: torch.nn.Module) -> None:
    utilities, name = vllm_names.weight_dispatch()
    getattr(utilities, name)(module, remove_weight=False)


def test_float32_convolution_is_not_packed(packed: list[torch.dtype]) -> None:
    packing.guard()
    convolution = layer((6, 1, 4), torch.float32)
    dispatch(convolution)
    assert packed == []
    assert convolution.weight.shape == (6, 1, 4)


def test_bfloat16_convolution_goes_the_original_way(packed: list[torch.dtype]) -> None:
    packing.guard()
    dispatch(layer((6, 1, 4), torch.bfloat16))
    assert packed == [torch.bfloat16]


def test_linear_layers_are_still_prepared() -> None:
    packing.guard()
    linear = layer((8, 16), torch.float32)
    dispatch(linear)
    assert linear.cpu_linear(torch.ones(1, 16), linear.weight, None).tolist() == [[16.0] * 8]
