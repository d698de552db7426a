#!/usr/bin/env python3
"""Makes the numerical oracle: tiny random models, and what transformers computes with them.

    python3 tests/oracle/make_oracle.py OUT_DIR

writes one folder per case and the file MADE_WITH into OUT_DIR (tests/oracle in this
repository). README.md says what a folder holds. Everything runs on the CPU, on one thread,
from fixed seeds: the same libraries on the same kind of CPU give the same bytes.

The reference is transformers' own model class, loss, AdamW (PyTorch's) and schedule, in f32
with eager attention. Each gradient and each loss of the run is checked against the same
computation in float64; the script stops when they are further apart than F64_LIMIT.
"""

import argparse
import contextlib
import json
import math
import platform
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy
import safetensors
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen3ForCausalLM, Qwen3MoeForCausalLM
from transformers.models.llama import modeling_llama
from transformers.models.qwen3 import modeling_qwen3
from transformers.models.qwen3_moe import modeling_qwen3_moe

from cases import STEPS, Case, Config, Document, cases

F64_LIMIT = 1e-5  # f32 against f64, per leaf, relative to max(leaf norm, 1e-3 of the whole norm)
IGNORE = -100  # a label that is no target
ROUTER_GAP = 1e-4  # least distance of the last chosen logit and probability from the next in the first step

Gradients = dict[str, torch.Tensor]
Row = list[dict[str, list[int]]]  # the documents of a packed row


# ---------------------------------------------------------------------------------------------
# Data
# ---------------------------------------------------------------------------------------------


def make_row(doc: Document, vocab: int, rng: random.Random) -> dict[str, list[int]]:
    """A document that a model can learn a little of: 6 of 10 tokens follow from the one before."""
    ids = [rng.randrange(vocab)]
    while len(ids) < doc.length:
        ids.append((5 * ids[-1] + 11) % vocab if rng.random() < 0.6 else rng.randrange(vocab))
    kind, _, number = doc.labels.partition(":")
    if kind == "none":
        return {"input_ids": ids}
    labels = list(ids)
    if kind == "gaps":
        start = 0
        while start < doc.length:
            stop = start + rng.randrange(1, 30)
            labels[start:stop] = [IGNORE] * len(labels[start:stop])
            start = stop + rng.randrange(1, 30)
    elif kind == "completion":
        labels[: int(number)] = [IGNORE] * int(number)
    elif kind == "single":
        labels = [v if i == int(number) else IGNORE for i, v in enumerate(ids)]
    return {"input_ids": ids, "labels": labels}


def labels_of(row: dict[str, list[int]]) -> list[int]:
    return row.get("labels", row["input_ids"])


def targets_of(row: dict[str, list[int]]) -> int:
    """Labels are unshifted: the first token of a document is never a target."""
    return sum(label != IGNORE for label in labels_of(row)[1:])


def tokens_of(rows: list[Row]) -> int:
    return sum(len(doc["input_ids"]) for row in rows for doc in row)


def targets_in(rows: list[Row]) -> int:
    return sum(targets_of(doc) for row in rows for doc in row)


def steps_of(packed: list[Row], rows_per_step: int) -> Iterator[list[Row]]:
    """The rows of each optimizer step: in file order, epoch after epoch."""
    done = 0
    while True:
        for start in range(0, len(packed), rows_per_step):
            yield packed[start : start + rows_per_step]
            done += 1
            if done == STEPS:
                return


# ---------------------------------------------------------------------------------------------
# Model
# ---------------------------------------------------------------------------------------------


def model_class(config: Config) -> type[PreTrainedModel]:
    classes = {"qwen3": Qwen3ForCausalLM, "qwen3_moe": Qwen3MoeForCausalLM, "llama": LlamaForCausalLM}
    return classes[config.model_type]


def has_experts(model: PreTrainedModel) -> bool:
    return model.config.model_type == "qwen3_moe"


def fill(model: PreTrainedModel, seed: int, bias: dict[int, float]) -> None:
    """Seeded weights of a trained model's scale, exact in bf16 (and in f16). With `bias` (expert -> number) the
    first channel is the same for all tokens, so that the routers can prefer some experts throughout."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if name.endswith("norm.weight"):
            value = 0.5 + torch.rand(p.shape, generator=generator)
        elif name.endswith(".bias"):
            value = 0.3 * torch.randn(p.shape, generator=generator)
        elif name.endswith("embed_tokens.weight"):
            scale = 1.5 / math.sqrt(p.shape[1]) if model.config.tie_word_embeddings else 0.7
            value = scale * torch.randn(p.shape, generator=generator)
        else:
            scale = (1.5 if name == "lm_head.weight" else 1.1) / math.sqrt(p.shape[-1])
            value = scale * torch.randn(p.shape, generator=generator)
        if bias and name.endswith("embed_tokens.weight"):
            value[:, 0] = 3.0
        if bias and name.endswith(("o_proj.weight", "down_proj.weight", "experts.down_proj")):
            value[..., 0, :] *= 0.0625
        if bias and name.endswith("mlp.gate.weight"):
            for expert, push in bias.items():
                value[expert, 0] = push
        value = value.to(torch.bfloat16).to(torch.float16).to(torch.float32)
        assert torch.equal(value, value.to(torch.bfloat16).to(torch.float32))
        p.data.copy_(value)


def save_model(case: Case, folder: Path, seed: int) -> None:
    model = model_class(case.config)(case.config)
    fill(model, seed, case.bias)
    wanted = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.to(case.stored).save_pretrained(folder, max_shard_size=case.shard)
    if case.edit_config:
        path = folder / "config.json"
        before = load_model(case, folder, torch.float32)
        config = case.edit_config(json.loads(path.read_text()))
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        after = load_model(case, folder, torch.float32)
        assert before.config.rope_parameters == after.config.rope_parameters
        assert torch.equal(before.model.rotary_emb.inv_freq, after.model.rotary_emb.inv_freq)
        assert before.config.to_dict() == after.config.to_dict()
    for name, p in load_model(case, folder, torch.float32).named_parameters():
        assert torch.equal(p, wanted[name]), name


def load_model(case: Case, folder: Path, dtype: torch.dtype, attention: str = "eager") -> PreTrainedModel:
    """The model that lies in the folder. Casting while loading (not by model.to()) leaves RoPE's
    frequencies in f32, as in every real run."""
    model = model_class(case.config).from_pretrained(folder, dtype=dtype, attn_implementation=attention)
    if has_experts(model):
        model.set_experts_implementation("eager")
        model.router_aux_loss_coef = 0.0  # step_loss() adds the auxiliary loss, over whole rows
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    return model


@contextlib.contextmanager
def all_float64() -> Iterator[None]:
    """Within this, a model in float64 computes everything but RoPE's angles in float64.
    (transformers' norms and softmax go through f32 whatever the type of their input.)"""

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    def attention(module, query, key, value, attention_mask, scaling, **_):
        key = key.repeat_interleave(module.num_key_value_groups, dim=1)
        value = value.repeat_interleave(module.num_key_value_groups, dim=1)
        scores = query @ key.transpose(2, 3) * scaling + attention_mask
        return (scores.softmax(-1) @ value).transpose(1, 2).contiguous(), None

    with (
        mock.patch.object(modeling_qwen3.Qwen3RMSNorm, "forward", norm),
        mock.patch.object(modeling_qwen3_moe.Qwen3MoeRMSNorm, "forward", norm),
        mock.patch.object(modeling_llama.LlamaRMSNorm, "forward", norm),
        mock.patch.object(modeling_qwen3, "eager_attention_forward", attention),
        mock.patch.object(modeling_qwen3_moe, "eager_attention_forward", attention),
        mock.patch.object(modeling_llama, "eager_attention_forward", attention),
    ):
        yield


# ---------------------------------------------------------------------------------------------
# What is computed
# ---------------------------------------------------------------------------------------------


def divided_loss(model: PreTrainedModel, doc: dict, targets: int) -> tuple[torch.Tensor, tuple]:
    """One document's share of the step's loss (the sum of its token losses / the step's targets), and its
    router logits, layer by layer."""
    ids = torch.tensor([doc["input_ids"]])
    labels = torch.tensor([labels_of(doc)])
    routers = {"output_router_logits": True} if has_experts(model) else {}
    if model.dtype != torch.float64:
        out = model(input_ids=ids, labels=labels, num_items_in_batch=targets, use_cache=False, **routers)
        return out.loss, out.router_logits if routers else ()
    out = model(input_ids=ids, use_cache=False, **routers)  # transformers' loss would round the logits to f32
    sums = functional.cross_entropy(out.logits[0, :-1], labels[0, 1:], ignore_index=IGNORE, reduction="sum")
    return sums / targets, out.router_logits if routers else ()


def losses_of(model: PreTrainedModel, rows: list[Row], coefficient: float) -> Iterator[torch.Tensor]:
    """The parts of a step's loss. Each document is a forward of its own with positions from 0, which is what
    packing without leaks has to equal. A row's auxiliary loss pools all tokens of its documents in all layers;
    the step's is the mean of its rows' weighted by their tokens."""
    targets = targets_in(rows)
    for row in rows:
        losses, logits = zip(*(divided_loss(model, doc, targets) for doc in row if targets_of(doc) or has_experts(model)))
        if coefficient:
            pooled = tuple(torch.cat(layer) for layer in zip(*logits))
            aux = modeling_qwen3_moe.load_balancing_loss_func(
                pooled, model.config.num_experts, model.config.num_experts_per_tok
            )
            yield sum(losses) + coefficient * tokens_of([row]) / tokens_of(rows) * aux
        else:
            yield from losses


def backward(model: PreTrainedModel, rows: list[Row], coefficient: float) -> float:
    """The gradients of one step, into p.grad; returns its loss."""
    model.zero_grad(set_to_none=True)
    total = 0.0
    for loss in losses_of(model, rows, coefficient):
        loss.backward()
        total += loss.item()
    return total


def gradients(model: PreTrainedModel, rows: list[Row], coefficient: float) -> tuple[float, Gradients]:
    """Loss and gradients of one step, in at least f32. Documents are added up in that type: a bf16
    model's error is then that of its own forward and backward, without bf16 accumulation."""
    total, sums = 0.0, {}
    for loss in losses_of(model, rows, coefficient):
        model.zero_grad(set_to_none=True)
        loss.backward()
        total += loss.item()
        for name, p in model.named_parameters():
            grad = p.grad.to(torch.promote_types(p.dtype, torch.float32))
            sums[name] = sums[name] + grad if name in sums else grad.clone()
    return total, sums


@torch.no_grad()
def routing_of(model: PreTrainedModel, rows: list[Row]) -> tuple[float, list[list[int]], float]:
    """Over the rows: the least gap between a last chosen router value and the next (logits and probabilities),
    how often each expert is chosen in each layer, and the auxiliary loss that metrics show."""
    top, experts = model.config.num_experts_per_tok, model.config.num_experts
    gap, picked, aux = math.inf, None, 0.0
    for row in rows:
        logits = [divided_loss(model, doc, 1)[1] for doc in row]
        pooled = tuple(torch.cat(layer) for layer in zip(*logits))
        aux += tokens_of([row]) / tokens_of(rows) * modeling_qwen3_moe.load_balancing_loss_func(pooled, experts, top).item()
        counts = torch.stack([torch.bincount(z.topk(top).indices.reshape(-1), minlength=experts) for z in pooled])
        picked = counts if picked is None else picked + counts
        for layer in pooled:
            for values in (layer, layer.softmax(-1)):
                ranked = values.sort(-1, descending=True).values
                if top < experts:
                    gap = min(gap, (ranked[:, top - 1] - ranked[:, top]).min().item())
    return gap, picked.tolist(), aux


def train(model: PreTrainedModel, case: Case, packed: list[Row]) -> dict[str, list]:
    o = case.optimizer
    # transformers' Trainer leaves out norms and biases by name; in these models they are the vectors
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": o["weight_decay"]},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"], foreach=False)
    warmup = o["warmup"] if o["warmup"] >= 1 else math.ceil(STEPS * o["warmup"])
    schedule = transformers.get_scheduler(o["schedule"], optimizer, num_warmup_steps=warmup, num_training_steps=STEPS)
    log = {"losses": [], "grad_norms": [], "lrs": [], "step_targets": []}
    for rows in steps_of(packed, case.rows_per_step):
        log["losses"].append(backward(model, rows, case.aux))
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), o["clip"], foreach=False)
        log["grad_norms"].append(norm.item())
        log["lrs"].append(schedule.get_last_lr()[0])
        log["step_targets"].append(targets_in(rows))
        optimizer.step()
        schedule.step()
    return log


def whole_norm(grads: Gradients) -> float:
    return math.sqrt(sum(g.double().square().sum().item() for g in grads.values()))


def leaf_errors(got: Gradients, want: Gradients) -> dict[str, float]:
    """Per leaf: |got - want| / max(|want|, 1e-3 of the whole gradient's norm)."""
    assert got.keys() == want.keys()
    floor = 1e-3 * whole_norm(want)
    return {
        name: (got[name].double() - w.double()).norm().item() / max(w.double().norm().item(), floor)
        for name, w in want.items()
    }


def worst_relative(got: list[float], want: list[float]) -> float:
    return max(abs(g - w) / abs(w) for g, w in zip(got, want, strict=True))


# ---------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------


def write_run_ini(case: Case, path: Path) -> None:
    lines = ["; the run behind expected.json; model.path, data.train and run.dir are the test's"]
    for section, keys in case.settings().items():
        lines += [f"[{section}]", *(f"{key}={value}" for key, value in keys.items()), ""]
    path.write_text("\n".join(lines[:-1]) + "\n")


def write_json(value: dict, path: Path) -> None:
    """One line a key: arrays stay readable, and a change shows as one line."""
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(v, allow_nan=False)}" for key, v in value.items())
    path.write_text("{\n" + lines + "\n}\n")


def write_gradients(grads: Gradients, path: Path, dtype: torch.dtype) -> None:
    save_file({k: v.to(dtype).contiguous() for k, v in grads.items()}, path, metadata={"format": "pt"})


def make_case(case: Case, out: Path, seed: int) -> bool:
    """False when the seed makes a choice of experts a coin toss, or the run one in float64."""
    folder = out / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model_folder = folder / "model"
    save_model(case, model_folder, seed)

    rng = random.Random(seed)
    packed = [[make_row(doc, case.config.vocab_size, rng) for doc in row] for row in case.rows]
    with open(folder / "data.jsonl", "w") as f:
        for row in packed:
            assert sum(len(doc["input_ids"]) for doc in row) <= case.sequence
            assert len(row) == 1 or case.packing != "none"
            for doc in row:
                f.write(json.dumps(doc, separators=(",", ":")) + "\n")
    write_run_ini(case, folder / "run.ini")

    first = next(steps_of(packed, case.rows_per_step))
    experts = {}
    if case.config.model_type == "qwen3_moe":
        gap, picked, aux = routing_of(load_model(case, model_folder, torch.float32), first)
        if gap < ROUTER_GAP or not case.wanted(picked):
            return False
        experts = {"aux_loss": aux, "router_gap": min(gap, 1.0), "picked": picked}
    loss, grads = gradients(load_model(case, model_folder, torch.float32), first, case.aux)
    curve = train(load_model(case, model_folder, torch.float32), case, packed)
    with all_float64():
        _, exact = gradients(load_model(case, model_folder, torch.float64), first, case.aux)
        exact_curve = train(load_model(case, model_folder, torch.float64), case, packed)

    write_gradients(grads, folder / "grads.safetensors", torch.float32)
    errors = leaf_errors(grads, exact)
    norm = whole_norm(grads)
    checks = {
        "worst_leaf": max(errors.values()),
        "worst_loss": worst_relative(curve["losses"], exact_curve["losses"]),
        "worst_grad_norm": worst_relative(curve["grad_norms"], exact_curve["grad_norms"]),
    }
    if experts and max(checks.values()) >= F64_LIMIT:
        return False
    in_bf16, told = {}, ""
    if not experts:  # in bf16 a choice of experts is a coin toss
        loss_bf16, grads_bf16 = gradients(load_model(case, model_folder, torch.bfloat16, "sdpa"), first, 0.0)
        write_gradients(grads_bf16, folder / "grads_bf16.safetensors", torch.bfloat16)
        errors_bf16 = leaf_errors(load_file(folder / "grads_bf16.safetensors"), grads)
        worst = max(errors_bf16, key=errors_bf16.get)
        in_bf16 = {
            "bf16": {"loss": loss_bf16, "grad_norm": whole_norm(grads_bf16), "worst_leaf": errors_bf16[worst]}
        }
        told = f"; bf16 against f32: worst leaf {errors_bf16[worst]:.1e} ({worst})"
    write_json(
        {
            "settings": case.settings(),
            "targets": curve["step_targets"][0],
            "loss": loss,
            "grad_norm": norm,
            **curve,
            "float64": checks,
            **in_bf16,
            **experts,
        },
        folder / "expected.json",
    )

    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    print(
        f"{case.name:16} {sum(g.numel() for g in grads.values()):6} parameters, {size / 1e3:4.0f} kB;"
        f" loss {curve['losses'][0]:.4f} -> {curve['losses'][-1]:.4f}, ln V {math.log(case.config.vocab_size):.4f};"
        f" norms {min(curve['grad_norms']):.3f}..{max(curve['grad_norms']):.3f}"
    )
    print(
        f"{'':16} f32 against f64: worst leaf {checks['worst_leaf']:.1e} ({max(errors, key=errors.get)}),"
        f" loss {checks['worst_loss']:.1e}, norm {checks['worst_grad_norm']:.1e}{told}"
    )
    if experts:
        print(f"{'':16} router gap {gap:.1e}, choices {picked}")
    smallest = min(grads, key=lambda name: grads[name].norm().item())
    print(f"{'':16} smallest leaf: {grads[smallest].norm().item() / norm:.1e} of the whole norm ({smallest})")
    assert max(checks.values()) < F64_LIMIT, checks
    assert all(torch.isfinite(g).all() and g.norm() > 1e-3 * norm for g in grads.values())
    assert abs(loss - curve["losses"][0]) <= 1e-6 * loss and abs(norm - curve["grad_norms"][0]) <= 1e-6 * norm
    return True


def write_made_with(path: Path) -> None:
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__.partition("+")[0],
        "transformers": transformers.__version__,
        "safetensors": safetensors.__version__,
        "numpy": numpy.__version__,
        "cpu": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }
    path.write_text("".join(f"{name} {version}\n" for name, version in versions.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the numerical oracle: one folder per case, and MADE_WITH.")
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--only", help="the one case to make; MADE_WITH stays")
    arguments = parser.parse_args()
    out = arguments.out_dir
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for number, case in enumerate(cases()):
        if arguments.only not in (None, case.name):
            continue
        seed = 1000 + number
        while not make_case(case, out, seed):
            seed += 100
    if not arguments.only:
        write_made_with(out / "MADE_WITH")


if __name__ == "__main__":
    main()
