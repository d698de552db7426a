#!/usr/bin/env python3
"""Makes the oracle's LoRA cases: what PEFT computes with adapters on the models of the other cases.

    python3 tests/oracle/make_lora_oracle.py OUT_DIR

after make_oracle.py, into the same folder. README.md says what a folder holds. The rules are those
of make_oracle.py; only the adapters are trained.
"""

import argparse
import json
import math
import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

import make_oracle as oracle
from cases import Case, adamw, cases


@dataclass
class LoraCase:
    name: str
    base: str  # the case whose model and rows it takes
    rank: int
    alpha: int
    targets: list[str]
    optimizer: dict[str, float | int | str]
    rslora: bool = False
    parameters: list[str] | None = None  # target_parameters

    def lora(self) -> LoraConfig:
        return LoraConfig(
            r=self.rank, lora_alpha=self.alpha, target_modules=self.targets, target_parameters=self.parameters,
            use_rslora=self.rslora, task_type="CAUSAL_LM",
        )


ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
# Of a model with experts PEFT takes the modules gate_proj, up_proj and down_proj for the experts'.
DENSE = ["mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"]
LORA_CASES = [
    LoraCase("lora_qv", "qwen3", 3, 7, ["q_proj", "v_proj"], adamw(lr=2e-2, warmup=3, weight_decay=0.1, clip=0.05)),
    LoraCase(
        "lora_all", "llama_tied", 5, 3, ALL, adamw(lr=1e-2, warmup=0, weight_decay=0.0, clip=1.0), rslora=True,
    ),
    LoraCase(
        "lora_bias", "llama3", 4, 10, ["k_proj", "o_proj", "up_proj", "down_proj"],
        adamw(lr=1e-2, warmup=0.2, weight_decay=0.05, clip=0.5, beta2=0.95),
    ),
    LoraCase("lora_packed", "packed", 1, 2, ["v_proj", "gate_proj"], adamw(lr=3e-2, warmup=2, weight_decay=0, clip=10.0)),
    LoraCase(
        "lora_moe_attention", "moe", 3, 7, ["q_proj", "o_proj"], adamw(lr=1e-2, warmup=2, weight_decay=0.1, clip=0.5),
    ),
    LoraCase(
        "lora_moe", "moe", 3, 5, ["q_proj"], adamw(lr=5e-3, warmup=2, weight_decay=0.1, clip=0.5),
        parameters=EXPERTS,
    ),
    LoraCase(
        "lora_moe_mixed", "moe_mixed", 2, 3, ["v_proj"], adamw(lr=5e-3, warmup=1, weight_decay=0.05, clip=1.0),
        rslora=True, parameters=[*DENSE, "mlp.experts.gate_up_proj"],
    ),
    LoraCase(
        "lora_moe_packed", "moe_packed", 1, 2, [], adamw(lr=1e-2, warmup=2, weight_decay=0, clip=10.0),
        parameters=["mlp.experts.down_proj"],
    ),
    LoraCase(
        "lora_moe_starved", "moe_starved", 5, 3, [], adamw(lr=2e-3, warmup=0, weight_decay=0.1, clip=2.0),
        parameters=EXPERTS,
    ),
    # PEFT makes of these modules gate_up_proj of twice the rank, and down_proj, of the experts alone.
    LoraCase(
        "lora_moe_joined", "moe_mixed", 3, 5, ["o_proj", "gate_proj", "up_proj", "down_proj"],
        adamw(lr=5e-3, warmup=2, weight_decay=0.1, clip=1.0), rslora=True,
    ),
]


def trained(model: PeftModel) -> dict[str, torch.nn.Parameter]:
    """Adapters under the names that their file has."""
    return {n.replace(".default.", "."): p for n, p in model.named_parameters() if p.requires_grad}


def fill_adapters(model: PeftModel, seed: int) -> None:
    """Exact in bf16. B is not zero, or A would have no gradient."""
    generator = torch.Generator().manual_seed(seed)
    rank = model.peft_config["default"].r
    for name, p in trained(model).items():
        # B of experts has a column for each rank of each of them.
        columns = p.shape[1] if ".lora_A." in name else rank
        scale = (1.0 if ".lora_A." in name else 0.4) / math.sqrt(columns)
        p.data.copy_((scale * torch.randn(p.shape, generator=generator)).to(torch.bfloat16))


def load(case: Case, base: Path, adapter: Path, dtype: torch.dtype, attention: str = "eager") -> PeftModel:
    model = oracle.load_model(case, base, dtype, attention)
    # In bf16 the adapters are bf16 too, as under autocast; PEFT alone would compute them in f32.
    return PeftModel.from_pretrained(model, adapter, is_trainable=True, autocast_adapter_dtype=False).to(dtype)


def gradients(model: PeftModel, rows: list[oracle.Row], coefficient: float) -> tuple[float, oracle.Gradients]:
    return oracle.gradients(Trained(model), rows, coefficient)


class Trained:
    """A model whose parameters are its adapters, under the names of their file."""

    def __init__(self, model: PeftModel):
        self.model = model
        self.dtype = model.dtype
        self.config = model.config

    def __call__(self, **arguments):
        return self.model(**arguments)

    def zero_grad(self, set_to_none: bool) -> None:
        self.model.zero_grad(set_to_none=set_to_none)

    def named_parameters(self):
        return trained(self.model).items()

    def parameters(self):
        return trained(self.model).values()


def make_case(lora: LoraCase, base_case: Case, out: Path, seed: int) -> bool:
    """False as in make_oracle.py: the seed makes a choice of experts a coin toss."""
    folder, base = out / lora.name, out / lora.base
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    adapter = folder / "adapter"
    model = get_peft_model(oracle.load_model(base_case, base / "model", torch.float32), lora.lora())
    fill_adapters(model, seed)
    model.peft_config["default"].base_model_name_or_path = lora.base
    model.save_pretrained(adapter)
    (adapter / "README.md").unlink()
    # PEFT keeps targets in a set, whose order differs from run to run
    config = json.loads((adapter / "adapter_config.json").read_text())
    for key in ("target_modules", "target_parameters"):
        config[key] = sorted(config[key]) if config[key] is not None else None
    (adapter / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True))

    case = replace(base_case, name=lora.name, optimizer=lora.optimizer)
    oracle.write_run_ini(case, folder / "run.ini")
    docs = [json.loads(line) for line in (base / "data.jsonl").read_text().splitlines()]
    packed = [[docs.pop(0) for _ in row] for row in case.rows]
    assert not docs
    first = next(oracle.steps_of(packed, case.rows_per_step))
    experts = {}
    if case.config.model_type == "qwen3_moe":
        gap, picked, aux = oracle.routing_of(Trained(load(case, base / "model", adapter, torch.float32)), first)
        if gap < oracle.ROUTER_GAP or not case.wanted(picked):
            return False
        experts = {"aux_loss": aux, "router_gap": min(gap, 1.0), "picked": picked}
    loss, grads = gradients(load(case, base / "model", adapter, torch.float32), first, case.aux)
    curve = oracle.train(Trained(load(case, base / "model", adapter, torch.float32)), case, packed)
    with oracle.all_float64():
        _, exact = gradients(load(case, base / "model", adapter, torch.float64), first, case.aux)
        exact_curve = oracle.train(Trained(load(case, base / "model", adapter, torch.float64)), case, packed)

    oracle.write_gradients(grads, folder / "grads.safetensors", torch.float32)
    errors = oracle.leaf_errors(grads, exact)
    norm = oracle.whole_norm(grads)
    checks = {
        "worst_leaf": max(errors.values()),
        "worst_loss": oracle.worst_relative(curve["losses"], exact_curve["losses"]),
        "worst_grad_norm": oracle.worst_relative(curve["grad_norms"], exact_curve["grad_norms"]),
    }
    if experts and max(checks.values()) >= oracle.F64_LIMIT:
        return False
    in_bf16 = {}
    if not experts:  # in bf16 a choice of experts is a coin toss
        loss_bf16, grads_bf16 = gradients(load(case, base / "model", adapter, torch.bfloat16, "sdpa"), first, 0.0)
        oracle.write_gradients(grads_bf16, folder / "grads_bf16.safetensors", torch.bfloat16)
        in_bf16 = {"bf16": {"loss": loss_bf16, "grad_norm": oracle.whole_norm(grads_bf16)}}
    oracle.write_json(
        {
            "base": lora.base,
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
    smallest = min(grads, key=lambda name: grads[name].norm().item())
    print(
        f"{lora.name:16} {sum(g.numel() for g in grads.values()):6} parameters; loss {curve['losses'][0]:.4f} ->"
        f" {curve['losses'][-1]:.4f}; norms {min(curve['grad_norms']):.3f}..{max(curve['grad_norms']):.3f};"
        f" f32 against f64: worst leaf {checks['worst_leaf']:.1e}, loss {checks['worst_loss']:.1e},"
        f" norm {checks['worst_grad_norm']:.1e}; smallest leaf {grads[smallest].norm().item() / norm:.1e} ({smallest})"
    )
    assert max(checks.values()) < oracle.F64_LIMIT, checks
    assert all(torch.isfinite(g).all() and g.norm() > 1e-3 * norm for g in grads.values())
    assert abs(loss - curve["losses"][0]) <= 1e-6 * loss and abs(norm - curve["grad_norms"][0]) <= 1e-6 * norm
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the oracle's LoRA cases: one folder per case.")
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--only", help="the one case to make")
    arguments = parser.parse_args()
    out = arguments.out_dir
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    random.seed(0)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    base_cases = {case.name: case for case in cases()}
    for number, lora in enumerate(LORA_CASES):
        if arguments.only not in (None, lora.name):
            continue
        seed = 2000 + number
        while not make_case(lora, base_cases[lora.base], out, seed):
            seed += 100


if __name__ == "__main__":
    main()
