"""make MODEL OUT [PARAMETER ...]: an adapter of PEFT's own, on three projections, or two and the parameters, or
("modules") two and the MLP's.
check MODEL DATA WORK: what PEFT computes with what lies in WORK, against the losses that Annulus printed: a line
"NAME FOLDER LOSS" of WORK/losses each."""
import json
import pathlib
import sys
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

warnings.filterwarnings("ignore")
torch.set_num_threads(1)


def load(path):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    if model.config.model_type == "qwen3_moe":
        model.set_experts_implementation("eager")  # the grouped one asks for rows of 16 bytes
    return model


def make(model, out, parameters):
    torch.manual_seed(5)
    modules = ["k_proj", "o_proj"] if parameters else ["k_proj", "o_proj", "up_proj"]
    if parameters == ["modules"]:
        modules, parameters = modules + ["gate_proj", "up_proj", "down_proj"], []
    config = LoraConfig(
        r=2, lora_alpha=3, target_modules=modules, target_parameters=parameters or None, use_rslora=True,
        task_type="CAUSAL_LM",
    )
    adapted = get_peft_model(load(model), config)
    for name, p in adapted.named_parameters():
        if "lora_B" in name:
            p.data.normal_(0, 0.2 if "up_proj" in modules else 0.5)
    adapted.save_pretrained(out)


def loss_of(model, rows):
    nll, targets = 0.0, 0
    for row in rows:
        ids = torch.tensor([row["input_ids"]])
        labels = torch.tensor(row.get("labels", row["input_ids"]))[1:]
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits[0, :-1].double()
        nll += torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum").item()
        targets += int((labels != -100).sum())
    return nll / targets


def open_folder(model, folder):
    if (folder / "adapter_config.json").exists():
        return PeftModel.from_pretrained(load(model), folder)
    return load(folder)


def check(model, data, work):
    rows = [json.loads(line) for line in open(data)]
    base = loss_of(load(model), rows)
    for line in open(work / "losses"):
        name, folder, ours = line.split()
        loss = loss_of(open_folder(model, work / folder), rows)
        print(f"{name}: {ours} here, {loss:.6f} there, {base:.6f} without adapters")
        assert abs(float(ours) - loss) < 1e-5, name  # six decimals are printed
        assert abs(loss - base) > 1e-2, name
    trained = PeftModel.from_pretrained(load(model), work / "run" / "adapter")
    # Ours are rounded once, from f32, to the stored bf16; theirs are f32.
    merged, whole = load(work / "merged").state_dict(), trained.merge_and_unload().state_dict()
    assert merged.keys() == whole.keys()
    for name, w in whole.items():
        torch.testing.assert_close(merged[name], w.to(torch.bfloat16).to(torch.float32), rtol=2**-7, atol=1e-6)
        assert (merged[name] != w.to(torch.bfloat16)).float().mean() < 1e-3, name


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3], sys.argv[4:])
else:
    check(sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]))
