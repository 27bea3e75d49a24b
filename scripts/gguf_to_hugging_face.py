#!/usr/bin/env python3
"""Writes a Llama's GGUF file as float32 safetensors under Hugging Face's names: OUT/one with model.safetensors,
OUT/sharded with three files and an index, both with config.json. Needs the packages gguf and numpy.

usage: gguf_to_hugging_face.py FILE.gguf OUT
"""
import json
import pathlib
import struct
import sys

import gguf
import numpy

MODEL_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
SHARDS = 3


def number(reader, key):
    return reader.fields[key].parts[-1][0].item()


def hugging_face_name(name):
    stem = name.removesuffix(".weight")
    if stem in MODEL_NAMES:
        return MODEL_NAMES[stem] + ".weight"
    block, layer, kind = stem.split(".")
    assert block == "blk", name
    return f"model.layers.{layer}.{LAYER_NAMES[kind]}.weight"


def half_split(rows, heads):
    """Rows of a head in pairs, as GGUF's rotary embedding wants them, to first halves and second halves."""
    head_rows = rows.shape[0] // heads
    return rows.reshape(heads, head_rows // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def tensors_of(reader):
    heads = {"attn_q": "llama.attention.head_count", "attn_k": "llama.attention.head_count_kv"}
    out = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        values = values.reshape([int(size) for size in reversed(tensor.shape)])
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            values = half_split(values, number(reader, heads[kind]))
        out[hugging_face_name(tensor.name)] = values
    return out


def write_safetensors(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [end, end + values.nbytes]}
        end += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for values in tensors.values():
            file.write(numpy.ascontiguousarray(values).tobytes())


def write_sharded(folder, tensors):
    names, weight_map = list(tensors), {}
    for shard in range(SHARDS):
        file = f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors"
        part = {name: tensors[name] for name in names[shard::SHARDS]}
        write_safetensors(folder / file, part)
        weight_map.update(dict.fromkeys(part, file))
    total = sum(values.nbytes for values in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def main(source, out):
    reader = gguf.GGUFReader(source)
    tensors = tensors_of(reader)
    config = {
        "model_type": "llama",
        "hidden_act": "silu",
        "num_hidden_layers": number(reader, "llama.block_count"),
        "hidden_size": number(reader, "llama.embedding_length"),
        "num_attention_heads": number(reader, "llama.attention.head_count"),
        "num_key_value_heads": number(reader, "llama.attention.head_count_kv"),
        "intermediate_size": number(reader, "llama.feed_forward_length"),
        "vocab_size": tensors["model.embed_tokens.weight"].shape[0],
        "rms_norm_eps": number(reader, "llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": number(reader, "llama.rope.freq_base"),
        "max_position_embeddings": number(reader, "llama.context_length"),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
    }
    for name in ("one", "sharded"):
        folder = pathlib.Path(out) / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config, indent=1))
        if name == "one":
            write_safetensors(folder / "model.safetensors", tensors)
        else:
            write_sharded(folder, tensors)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
