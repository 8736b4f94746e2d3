"""Programs that are right, from libraries that the field uses; weights are random.

    python -m benchmarks.clean.programs DEVICE NAME [NAME ...]

A program is a function of a device, in a group that is named after its library. Models are small,
with odd sizes among them; what takes a configuration of the library's own is as that library builds
it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, library, nn
from torch.nn import functional as F  # noqa: N812

PROGRAMS: dict[str, Callable[[str], None]] = {}
LIBRARIES: dict[str, str] = {}  # of each program


def program(library: str) -> Callable[[Callable[[str], None]], Callable[[str], None]]:
    """Enter a function into the list, with the library that it needs."""

    def enter(function: Callable[[str], None]) -> Callable[[str], None]:
        return _entered(function.__name__, library, function)

    return enter


def _entered(name: str, library: str, call: Callable[[str], None]) -> Callable[[str], None]:
    PROGRAMS[name], LIBRARIES[name] = call, library
    return call


def inference(
    model: Callable[..., Any], *inputs: Any, device: str, calls: int = 2, **options: Any
) -> None:
    """Compile a model and call it, without gradients. `options` are those of `torch.compile`."""
    if isinstance(model, nn.Module):
        model = model.to(device).eval()
    compiled = torch.compile(model, **options)
    with torch.no_grad():
        for _ in range(calls):
            compiled(*[_on(x, device) for x in inputs])


def training(
    model: nn.Module,
    *inputs: Any,
    device: str,
    steps: int = 3,
    autocast: torch.dtype | None = None,
    loss: Callable[[Any], Tensor] = lambda out: out.float().square().mean(),
    **options: Any,
) -> None:
    """Train a compiled model for a few steps with AdamW."""
    model = model.to(device).train()
    compiled = torch.compile(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(steps):
        context = torch.autocast(device, autocast) if autocast else contextlib.nullcontext()
        with context:
            value = loss(compiled(*[_on(x, device) for x in inputs]))
        value.backward()
        optimizer.step()
        optimizer.zero_grad()


def _on(value: Any, device: str) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def tokens(rows: int, length: int, vocabulary: int = 97) -> Tensor:
    return torch.randint(0, vocabulary, (rows, length))


# transformers

_TINY = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64,
}  # fmt: skip
_GROUPED = {**_TINY, "num_key_value_heads": 2}


def _language_model(name: str, **changes: Any) -> nn.Module:
    import transformers

    config = getattr(transformers, f"{name}Config")(**changes)
    config.use_cache = False
    return transformers.AutoModelForCausalLM.from_config(config)


class _Logits(nn.Module):
    """A model of transformers, with the first of its results."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.model(*inputs)[0]


_LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    "Llama": _GROUPED, "Mistral": _GROUPED, "Qwen2": _GROUPED,
    "Qwen3": {**_GROUPED, "head_dim": 12}, "Gemma": {**_GROUPED, "head_dim": 12}, "Phi": _TINY,
    "Olmo": _GROUPED, "GPTNeoX": _TINY,
    "OPT": {**_TINY, "ffn_dim": 96, "word_embed_proj_dim": 48},
    "GPT2": {"vocab_size": 97, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "Bloom": {"vocab_size": 97, "hidden_size": 48, "n_layer": 2, "n_head": 4},
    "Mixtral": {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "Falcon": {key: x for key, x in _TINY.items() if key[:3] != "int"}, "Granite": _GROUPED,
    "Cohere": _GROUPED, "Starcoder2": _GROUPED,
}  # fmt: skip


def _language_model_inference(name: str, dtype: torch.dtype, device: str) -> None:
    model = _Logits(_language_model(name, **_LANGUAGE_MODELS[name])).to(dtype)
    inference(model, tokens(2, 19), device=device)


for _number, _name in enumerate(_LANGUAGE_MODELS):
    _dtype = (torch.float32, torch.bfloat16)[_number % 2]
    _run = functools.partial(_language_model_inference, _name, _dtype)
    _entered(f"{_name.lower()}_inference", "transformers", _run)


@program("transformers")
def gpt2_training_autocast(device: str) -> None:
    model = _Logits(_language_model("GPT2", **_LANGUAGE_MODELS["GPT2"]))
    training(model, tokens(2, 17), device=device, autocast=torch.bfloat16)


@program("transformers")
def llama_training(device: str) -> None:
    training(_Logits(_language_model("Llama", **_GROUPED)), tokens(3, 11), device=device)


@program("transformers")
def llama_training_bfloat16(device: str) -> None:
    model = _Logits(_language_model("Llama", **_GROUPED)).to(torch.bfloat16)
    training(model, tokens(2, 16), device=device)


@program("transformers")
def llama_generate(device: str) -> None:
    model = _language_model("Llama", **_GROUPED).to(device).eval()
    model.config.use_cache = model.generation_config.use_cache = True
    model.generation_config.pad_token_id = 0
    model.forward = torch.compile(model.forward)
    prompt = tokens(1, 7).to(device)
    model.generate(prompt, max_new_tokens=5, do_sample=False, cache_implementation="static")


@program("transformers")
def bert_dynamic(device: str) -> None:
    from transformers import BertConfig, BertModel

    model = torch.compile(_Logits(BertModel(BertConfig(**_TINY))).to(device).eval(), dynamic=True)
    with torch.no_grad():
        for length in (9, 14, 23):
            model(tokens(2, length).to(device))


@program("transformers")
def bert_training_autocast(device: str) -> None:
    from transformers import BertConfig, BertModel

    training(
        _Logits(BertModel(BertConfig(**_TINY))),
        tokens(2, 12),
        device=device,
        autocast=torch.bfloat16,
    )


@program("transformers")
def t5_inference(device: str) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=97, d_model=48, d_kv=12, d_ff=96, num_layers=2, num_heads=4, use_cache=False
    )
    model = T5ForConditionalGeneration(config)

    def forward(source: Tensor, target: Tensor) -> Tensor:
        return model(input_ids=source, decoder_input_ids=target).logits

    model.to(device).eval()
    inference(forward, tokens(2, 13), tokens(2, 7), device=device)


@program("transformers")
def bart_training(device: str) -> None:
    from transformers import BartConfig, BartModel

    config = BartConfig(
        vocab_size=97, d_model=48, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, use_cache=False,
        max_position_embeddings=64,
    )  # fmt: skip
    training(_Logits(BartModel(config)), tokens(2, 11), device=device)


def _image_model(name: str, **changes: Any) -> nn.Module:
    import transformers

    config = getattr(transformers, f"{name}Config")(image_size=32, **changes)
    return _Logits(getattr(transformers, f"{name}Model")(config))


_IMAGE = {
    "patch_size": 8, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4,
}  # fmt: skip


@program("transformers")
def vit_inference_bfloat16(device: str) -> None:
    model = _image_model("ViT", **_IMAGE).to(torch.bfloat16)
    inference(model, torch.randn(2, 3, 32, 32, dtype=torch.bfloat16), device=device)


@program("transformers")
def vit_training_autocast(device: str) -> None:
    model = _image_model("ViT", **_IMAGE)
    training(model, torch.randn(2, 3, 32, 32), device=device, autocast=torch.bfloat16)


@program("transformers")
def dinov2_inference(device: str) -> None:
    inference(_image_model("Dinov2", **_IMAGE), torch.randn(2, 3, 32, 32), device=device)


@program("transformers")
def convnext_training(device: str) -> None:
    model = _image_model("ConvNext", hidden_sizes=[16, 24], depths=[1, 1], num_stages=2)
    training(model, torch.randn(2, 3, 32, 32), device=device)


@program("transformers")
def mamba_inference(device: str) -> None:
    model = _language_model(
        "Mamba", vocab_size=97, hidden_size=32, num_hidden_layers=1, state_size=8
    )
    inference(_Logits(model), tokens(1, 6), device=device)


# torchvision


def _vision(name: str, **changes: Any) -> nn.Module:
    import torchvision

    return getattr(torchvision.models, name)(weights=None, num_classes=11, **changes)


def _vision_inference(name: str, device: str) -> None:
    inference(_vision(name), torch.randn(2, 3, 64, 64), device=device, calls=1)


_VISION = ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1", "mnasnet0_5")
for _name in _VISION:
    _entered(f"{_name}_inference", "torchvision", functools.partial(_vision_inference, _name))


@program("torchvision")
def resnet18_channels_last_training(device: str) -> None:
    model = _vision("resnet18").to(memory_format=torch.channels_last)
    images = torch.randn(3, 3, 48, 48).to(memory_format=torch.channels_last)
    training(model, images, device=device, steps=2, autocast=torch.bfloat16)


@program("torchvision")
def mobilenet_training(device: str) -> None:
    training(_vision("mobilenet_v3_small"), torch.randn(3, 3, 32, 32), device=device, steps=2)


@program("torchvision")
def vision_transformer_inference(device: str) -> None:
    from torchvision.models import VisionTransformer

    model = VisionTransformer(32, 8, 2, 4, 48, 96, num_classes=7)
    inference(model, torch.randn(3, 3, 32, 32), device=device)


@program("torchvision")
def swin_inference(device: str) -> None:
    from torchvision.models.swin_transformer import SwinTransformer

    model = SwinTransformer([4, 4], 24, [1, 1], [2, 4], [4, 4], num_classes=7)
    inference(model, torch.randn(2, 3, 32, 32), device=device)


# timm


def _timm(name: str, device: str, *, train: bool = False, size: int = 64, **changes: Any) -> None:
    import timm

    model = timm.create_model(name, num_classes=7, **changes)
    images = torch.randn(2, 3, size, size)
    if train:
        training(model, images, device=device, steps=2)
    else:
        inference(model, images, device=device, calls=1)


_TIMM: dict[str, dict[str, Any]] = {
    "resnet10t": {}, "test_vit": {"size": 160}, "test_mambaout": {"size": 160},
    "test_efficientnet": {"size": 160}, "test_byobnet": {"size": 160, "train": True},
    "test_convnext": {"size": 160, "train": True}, "test_nfnet": {"size": 160},
    "mobilenetv4_conv_small": {}, "ghostnet_050": {},
}  # fmt: skip


for _name, _changes in _TIMM.items():
    _entered(f"timm_{_name}", "timm", functools.partial(_timm, _name, **_changes))


# diffusers


@program("diffusers")
def unet_inference(device: str) -> None:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=16, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    model.to(device).eval()

    def forward(x: Tensor, step: Tensor) -> Tensor:
        return model(x, step, return_dict=False)[0]

    inference(forward, torch.randn(2, 3, 16, 16), torch.tensor([3, 7]), device=device)


@program("diffusers")
def unet_with_text_training(device: str) -> None:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=8, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8,
        cross_attention_dim=24, attention_head_dim=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    inputs = torch.randn(2, 4, 8, 8), torch.tensor([3, 7]), torch.randn(2, 5, 24)
    training(model, *inputs, device=device, steps=2, loss=lambda out: out.sample.square().mean())


@program("diffusers")
def autoencoder_inference(device: str) -> None:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(block_out_channels=(16,), norm_num_groups=8).to(device).eval()

    def forward(x: Tensor) -> Tensor:
        return model.decode(model.encode(x).latent_dist.mode()).sample

    inference(forward, torch.randn(1, 3, 16, 16), device=device)


@program("diffusers")
def diffusion_transformer_bfloat16(device: str) -> None:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, num_layers=1, sample_size=8,
        norm_num_groups=8,
    )  # fmt: skip
    model.to(device, torch.bfloat16).eval()

    def forward(x: Tensor, step: Tensor, label: Tensor) -> Tensor:
        return model(x, step, label, return_dict=False)[0]

    x = torch.randn(2, 4, 8, 8, dtype=torch.bfloat16)
    inference(forward, x, torch.tensor([3, 7]), torch.tensor([1, 2]), device=device)


# torchao


def _quantized(config: str, dtype: torch.dtype, device: str) -> None:
    from torchao import quantization

    model = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64)).to(device, dtype).eval()
    quantization.quantize_(model, getattr(quantization, config)())
    inference(model, torch.randn(5, 64, dtype=dtype), device=device)


_QUANTIZED: dict[str, tuple[str, torch.dtype]] = {
    "int8_weights": ("Int8WeightOnlyConfig", torch.bfloat16),
    "int8_dynamic": ("Int8DynamicActivationInt8WeightConfig", torch.float32),
    "float8_weights": ("Float8WeightOnlyConfig", torch.bfloat16),
}
for _name, _how in _QUANTIZED.items():
    _entered(_name, "torchao", functools.partial(_quantized, *_how))


@program("torchao")
def float8_training(device: str) -> None:
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    model = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64)).to(device)
    config = Float8LinearConfig(emulate=device == "cpu")
    training(convert_to_float8_training(model, config=config), torch.randn(16, 64), device=device)


# lightning


@program("lightning")
def lightning_fit(device: str) -> None:
    import lightning

    class Regression(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(13, 32), nn.Tanh(), nn.Linear(32, 1))

        def training_step(self, batch: list[Tensor], number: int) -> Tensor:
            return F.mse_loss(self.layers(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 1e-3)

    trainer = lightning.Trainer(
        accelerator="gpu" if device == "cuda" else device, devices=1, max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(torch.compile(Regression()), _batches())


def _batches() -> Any:
    data = torch.utils.data.TensorDataset(torch.randn(24, 13), torch.randn(24, 1))
    return torch.utils.data.DataLoader(data, batch_size=8)


# accelerate


@program("accelerate")
def accelerate_training(device: str) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(
        cpu=device == "cpu", mixed_precision="bf16", dynamo_backend="inductor",
        gradient_accumulation_steps=2,
    )  # fmt: skip
    model = nn.Sequential(nn.Linear(13, 32), nn.GELU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    model, optimizer, batches = accelerator.prepare(model, optimizer, _batches())
    for x, target in batches:
        with accelerator.accumulate(model):
            accelerator.backward(F.mse_loss(model(x), target))
            optimizer.step()
            optimizer.zero_grad()


# torch_geometric


def _graph_network(layer: str, train: bool, device: str) -> None:
    import torch_geometric.nn as graphs

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = getattr(graphs, layer)(13, 16)
            self.second = getattr(graphs, layer)(16, 7)

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            return self.second(self.first(x, edges).relu(), edges)

    inputs = torch.randn(29, 13), torch.randint(0, 29, (2, 83))
    if train:
        training(Network(), *inputs, device=device, dynamic=True)
    else:
        inference(Network(), *inputs, device=device)


_GRAPHS = {
    "gcn_training": ("GCNConv", True),
    "gat_inference": ("GATConv", False),
    "sage_training": ("SAGEConv", True),
    "pna_edge_inference": ("TransformerConv", False),
}
for _name, (_layer, _train) in _GRAPHS.items():
    _entered(_name, "torch_geometric", functools.partial(_graph_network, _layer, _train))


# torch


def _attention(device: str, dtype: torch.dtype = torch.float32, **options: Any) -> None:
    shape = (2, 4, 23, 16)
    q, k, v = (torch.randn(shape, dtype=dtype) for _ in range(3))
    inference(
        lambda q, k, v: F.scaled_dot_product_attention(q * 1.5, k, v, **options) + q,
        q, k, v, device=device,
    )  # fmt: skip


_entered("attention_causal", "torch", functools.partial(_attention, is_causal=True))
_entered("attention_bfloat16", "torch", functools.partial(_attention, dtype=torch.bfloat16))


@program("torch")
def attention_with_mask(device: str) -> None:
    mask = torch.rand(23, 23) > 0.3
    mask[:, 0] = True
    _attention(device, attn_mask=mask.to(device))


@program("torch")
def attention_grouped(device: str) -> None:
    q, k = torch.randn(2, 4, 23, 16), torch.randn(2, 2, 23, 16)
    inference(
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), q, k, device=device
    )


@program("torch")
def attention_training(device: str) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(32, 96)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.project(x).view(2, 19, 3, 4, 8).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)

    training(Attention(), torch.randn(2, 19, 32), device=device)


@program("torch")
def flex_attention_inference(device: str) -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return q >= k

    mask = create_block_mask(causal, None, None, 128, 128, device=device)
    x = torch.randn(1, 2, 128, 32)
    inference(lambda q: flex_attention(q, q * 0.5, q, block_mask=mask), x, device=device)


@program("torch")
def encoder_training_dropout(device: str) -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    training(nn.TransformerEncoder(layer, 2), torch.randn(2, 13, 32), device=device)


@program("torch")
def batch_norm_channels_last(device: str) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(16, 24, 3, stride=2), nn.BatchNorm2d(24), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
    ).to(memory_format=torch.channels_last)  # fmt: skip
    images = torch.randn(4, 3, 18, 18).to(memory_format=torch.channels_last)
    training(model, images, device=device)


@program("torch")
def transposed_convolution(device: str) -> None:
    model = nn.Sequential(
        nn.ConvTranspose2d(4, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.GELU(), nn.MaxPool2d(2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
    )  # fmt: skip
    training(model, torch.randn(2, 4, 7, 7), device=device)


@program("torch")
def lstm_cells(device: str) -> None:
    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.gated = nn.LSTMCell(12, 20), nn.GRUCell(20, 9)

        def forward(self, x: Tensor) -> Tensor:
            h, c, g = x.new_zeros(3, 20), x.new_zeros(3, 20), x.new_zeros(3, 9)
            for step in x:
                h, c = self.cell(step, (h, c))
                g = self.gated(h, g)
            return g

    training(Cells(), torch.randn(4, 3, 12), device=device)


def _optimizer(name: str, device: str, **options: Any) -> None:
    model = nn.Sequential(nn.Linear(9, 33), nn.Tanh(), nn.Linear(33, 5)).to(device)
    optimizer = getattr(torch.optim, name)(model.parameters(), **options)
    step = torch.compile(optimizer.step)
    for _ in range(3):
        model(torch.randn(7, 9, device=device)).square().mean().backward()
        step()
        optimizer.zero_grad()


_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "AdamW": {"lr": 1e-3},
    "SGD": {"lr": 1e-2, "momentum": 0.9},
    "RMSprop": {"lr": 1e-3, "centered": True},
}
for _name, _options in _OPTIMIZERS.items():
    _run = functools.partial(_optimizer, _name, **_options)
    _entered(f"compiled_{_name.lower()}", "torch", _run)


@program("torch")
def operators_that_write(device: str) -> None:
    @library.custom_op("clean::rotate_", mutates_args=("x",))
    def rotate_(x: Tensor, angle: Tensor) -> None:
        half = x.shape[-1] // 2
        a, b = x[..., :half].clone(), x[..., half:].clone()
        x[..., :half] = a * angle.cos() - b * angle.sin()
        x[..., half:] = b * angle.cos() + a * angle.sin()

    @library.custom_op("clean::attend", mutates_args=("out",))
    def attend(out: Tensor, q: Tensor, k: Tensor) -> None:
        out.copy_(torch.softmax(q @ k.mT, -1) @ k)

    def forward(x: Tensor, angle: Tensor) -> Tensor:
        q, k = x * 1.5, x.sin()
        rotate_(q, angle)
        rotate_(k, angle)
        out = torch.empty_like(q)
        attend(out, q, k)
        return out + x

    inference(forward, torch.randn(2, 9, 16), torch.randn(9, 8), device=device)


@program("torch")
def cache_updated_in_place(device: str) -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(16, 16)
            self.register_buffer("keys", torch.zeros(2, 32, 16))

        def forward(self, x: Tensor, position: Tensor) -> Tensor:
            self.keys.index_copy_(1, position, self.project(x))
            return torch.softmax(x @ self.keys.mT, -1) @ self.keys

    model = Cached().to(device).eval()
    compiled = torch.compile(model)
    with torch.no_grad():
        for step in range(3):
            compiled(torch.randn(2, 1, 16, device=device), torch.tensor([step], device=device))


@program("torch")
def functional_collectives(device: str) -> None:
    import torch.distributed as dist
    import torch.distributed._functional_collectives as collectives

    store = dist.HashStore()
    dist.init_process_group(
        "gloo" if device == "cpu" else "nccl", rank=0, world_size=1, store=store
    )

    def forward(x: Tensor) -> Tensor:
        total = collectives.all_reduce(x * 2, "sum", dist.group.WORLD)
        parts = collectives.all_gather_tensor(total.relu(), 0, dist.group.WORLD)
        return parts.sum(0) + 1

    inference(forward, torch.randn(8, 5), device=device)
    dist.destroy_process_group()


@program("torch")
def checkpointed_training(device: str) -> None:
    from torch.utils.checkpoint import checkpoint

    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24)) for _ in range(2)
            )

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = x + checkpoint(block, x, use_reentrant=False)
            return x

    training(Blocks(), torch.randn(5, 24), device=device)


@program("torch")
def per_sample_gradients(device: str) -> None:
    weight = torch.randn(7, 5, device=device)

    def loss(w: Tensor, x: Tensor) -> Tensor:
        return (x @ w).tanh().square().sum()

    inference(
        torch.func.vmap(torch.func.grad(loss), (None, 0)), weight, torch.randn(6, 7), device=device
    )


@program("torch")
def spectrum(device: str) -> None:
    def forward(x: Tensor) -> Tensor:
        y = torch.fft.rfft(x * torch.hann_window(32, device=x.device))
        return torch.fft.irfft(y * 0.5).cumsum(-1) + y.abs().sum()

    inference(forward, torch.randn(3, 32), device=device)


@program("torch")
def sorting_and_choosing(device: str) -> None:
    def forward(x: Tensor) -> tuple[Tensor, ...]:
        values, order = x.sort(-1)
        top = x.topk(3, -1)
        return values.cumsum(-1), order + 1, top.values * 2, x.argmax(-1), x.median(-1).values

    inference(forward, torch.randn(5, 17), device=device)


@program("torch")
def embedding_bags_training(device: str) -> None:
    class Bags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = nn.EmbeddingBag(31, 12, mode="mean")
            self.table = nn.Embedding(31, 12, padding_idx=0)

        def forward(self, index: Tensor) -> Tensor:
            return self.bag(index) * self.table(index).sum(1)

    training(Bags(), tokens(4, 6, 31), device=device)


@program("torch")
def losses_training(device: str) -> None:
    class Losses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(16, 13)

        def forward(self, x: Tensor, target: Tensor) -> Tensor:
            y = self.head(x)
            smooth = F.cross_entropy(y, target, label_smoothing=0.1)
            return smooth + F.smooth_l1_loss(y, y.detach().roll(1, 0)) + F.kl_div(
                y.log_softmax(-1), y.detach().softmax(-1), reduction="batchmean"
            )  # fmt: skip

    training(Losses(), torch.randn(9, 16), tokens(1, 9, 13)[0], device=device, loss=lambda x: x)


@program("torch")
def scaled_half_training(device: str) -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)).to(
        device
    )
    compiled = torch.compile(model)
    scaler, optimizer = torch.amp.GradScaler(device), torch.optim.SGD(model.parameters(), 1e-2)
    for _ in range(6):
        with torch.autocast(device, torch.float16):
            loss = compiled(torch.randn(8, 16, device=device)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@program("torch")
def dynamic_batches_training(device: str) -> None:
    model = nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 3))
    compiled = torch.compile(model.to(device), dynamic=True)
    for rows in (4, 9, 6):
        compiled(torch.randn(rows, 10, device=device)).square().mean().backward()


@program("torch")
def whole_numbers(device: str) -> None:
    def forward(x: Tensor) -> tuple[Tensor, ...]:
        packed = (x & 15) | ((x >> 4) << 8)
        return packed, x.bincount(minlength=300).cumsum(0), (x % 7 == 3).sum(), x // 3

    inference(forward, tokens(1, 40, 255)[0], device=device)


@program("torch")
def branches_and_loops(device: str) -> None:
    def forward(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin() * 2, lambda y: y.cos() - 1, (x,))

    inference(forward, torch.randn(6, 7), device=device)


@program("torch")
def replayed_graphs(device: str) -> None:
    """CUDA graphs; on the CPU the same without them."""
    model = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32))
    inference(model, torch.randn(8, 32), device=device, calls=5, mode="reduce-overhead")


def main(device: str, *names: str) -> int:
    """Run programs of the list one after the other. Returns how many raised an error."""
    failed = 0
    for name in names:
        torch.manual_seed(0)
        torch._dynamo.reset()
        try:
            PROGRAMS[name](device)
        except Exception:  # the next ones run all the same
            traceback.print_exc()
            print(f"{name} failed", file=sys.stderr)
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
