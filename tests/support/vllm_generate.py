"""A small Llama in vLLM, for one request: `vllm_generate.py FOLDER [OPTIONS]`.

    vllm_generate.py --write FOLDER [WEIGHT]  writes the model, with a NaN in this weight

`OPTIONS` are those of `LLM`, as JSON. The environment of vLLM runs it, which need have nothing of
this repository.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HIDDEN, INNER, HEADS, KEYS, LAYERS, WORDS = 256, 512, 4, 2, 2, 1024
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEYS,
    "head_dim": HIDDEN // HEADS,
    "vocab_size": WORDS,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}


def write(folder: Path, nan: str) -> None:
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    rows = {"q": HIDDEN, "k": HIDDEN * KEYS // HEADS, "v": HIDDEN * KEYS // HEADS, "o": HIDDEN}
    shapes = {"model.embed_tokens": (WORDS, HIDDEN), "lm_head": (WORDS, HIDDEN)}
    weights = {"model.norm.weight": torch.ones(HIDDEN)}
    for name in (f"model.layers.{layer}" for layer in range(LAYERS)):
        weights[f"{name}.input_layernorm.weight"] = torch.ones(HIDDEN)
        weights[f"{name}.post_attention_layernorm.weight"] = torch.ones(HIDDEN)
        shapes |= {f"{name}.self_attn.{part}_proj": (size, HIDDEN) for part, size in rows.items()}
        shapes |= {f"{name}.mlp.{part}_proj": (INNER, HIDDEN) for part in ("gate", "up")}
        shapes[f"{name}.mlp.down_proj"] = (HIDDEN, INNER)
    for name, shape in shapes.items():
        weights[f"{name}.weight"] = torch.randn(shape) / shape[1] ** 0.5
    if nan:
        weights[nan].view(-1)[5] = float("nan")
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.bfloat16() for k, v in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))


def generate(folder: str, options: dict[str, object]) -> None:
    from vllm import LLM, SamplingParams

    # The call with which the engine measures its memory has as many tokens as a batch may have.
    llm = LLM(
        folder, skip_tokenizer_init=True, max_model_len=256, max_num_batched_tokens=256,
        max_num_seqs=8, seed=0, **options,
    )  # fmt: skip
    prompts = [{"prompt_token_ids": list(range(5, 10))}, {"prompt_token_ids": list(range(10, 30))}]
    greedy = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True, detokenize=False)
    for request in llm.generate(prompts, greedy, use_tqdm=False):
        print("tokens", *request.outputs[0].token_ids, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        write(Path(sys.argv[2]), "".join(sys.argv[3:]))
    else:
        generate(sys.argv[1], json.loads("".join(sys.argv[2:]) or "{}"))
