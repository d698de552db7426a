"""The oracle's cases: model shapes, rows and optimizer settings, one folder each."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from transformers import LlamaConfig, Qwen3Config, Qwen3MoeConfig

STEPS = 12
Config = Qwen3Config | Qwen3MoeConfig | LlamaConfig


@dataclass
class Document:
    length: int
    labels: str = "none"  # none: no key; all: equal to input_ids; gaps; completion:N; single:N


@dataclass
class Case:
    """One folder. `rows` lists the packed rows in file order, each a list of documents."""

    name: str
    config: Config
    rows: list[list[Document]]
    sequence: int
    rows_per_step: int
    optimizer: dict[str, float | int | str]
    packing: str = "none"
    stored: torch.dtype = torch.bfloat16
    shard: str = "50GB"  # max_shard_size of save_pretrained
    edit_config: Callable[[dict], dict] | None = None
    aux: float = 0.0  # coefficient of the auxiliary loss
    bias: dict[int, float] = field(default_factory=dict)  # expert -> what its router is pushed by
    wanted: Callable[[list[list[int]]], bool] = lambda picked: True  # of the first step's choices by layer

    def settings(self) -> dict[str, dict[str, float | int | str]]:
        """The run, in the words of run.ini: section -> key -> value."""
        moe = {"moe": {"aux_coefficient": self.aux}} if self.config.model_type == "qwen3_moe" else {}
        return moe | {
            "data": {"format": "tokens", "sequence": self.sequence, "packing": self.packing, "shuffle": "false"},
            "train": {"rows": self.rows_per_step, "steps": STEPS},
            "optimizer": self.optimizer,
        }


def adamw(lr: float, warmup: float, weight_decay: float, clip: float, beta2: float = 0.999, eps: float = 1e-8) -> dict:
    return {
        "lr": lr,
        "schedule": "linear",
        "warmup": warmup,  # below 1: a fraction of the steps, rounded up
        "beta1": 0.9,
        "beta2": beta2,
        "eps": eps,
        "weight_decay": weight_decay,  # on matrices, the embedding included; not on norms and biases
        "clip": clip,
    }


def old_style_config(config: dict) -> dict:
    """config.json as transformers 4 wrote it: theta at the top level, torch_dtype."""
    rope = config.pop("rope_parameters")
    assert rope["rope_type"] == "default"
    config["rope_theta"] = rope["rope_theta"]
    config["rope_scaling"] = None
    config["torch_dtype"] = config.pop("dtype")
    return config


def experts_config(layers: int, experts: int, top: int, normalize: bool, **more) -> Qwen3MoeConfig:
    return Qwen3MoeConfig(
        vocab_size=61, hidden_size=22, intermediate_size=34, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=6, max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6}, tie_word_embeddings=False,
        num_experts=experts, num_experts_per_tok=top, moe_intermediate_size=13, norm_topk_prob=normalize, **more,
    )  # fmt: skip


def only(chosen: set[int]) -> Callable[[list[list[int]]], bool]:
    """Tokens choose these experts, each of them in every layer, and no others."""
    return lambda picked: all((n > 0) == (e in chosen) for layer in picked for e, n in enumerate(layer))


def cases() -> list[Case]:
    def one(length: int, labels: str = "none") -> list[Document]:
        return [Document(length, labels)]

    return [
        Case(
            name="qwen3",
            config=Qwen3Config(
                vocab_size=131, hidden_size=37, intermediate_size=59, num_hidden_layers=3,
                num_attention_heads=6, num_key_value_heads=2, head_dim=8, max_position_embeddings=1024,
                rope_parameters={"rope_type": "default", "rope_theta": 1e6}, tie_word_embeddings=False,
            ),
            rows=[
                one(257, "gaps"), one(101, "all"), one(37, "single:22"),
                one(509), one(2), one(173, "completion:59"),
                one(211, "gaps"), one(3),
            ],
            sequence=509, rows_per_step=3,  # 3, 3, 2 rows: the epoch's last step is short
            optimizer=adamw(lr=4e-3, warmup=3, weight_decay=0.1, clip=1.0),
        ),
        Case(
            name="qwen3_tied_yarn",
            config=Qwen3Config(
                vocab_size=97, hidden_size=41, intermediate_size=53, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, head_dim=24, max_position_embeddings=256,
                rope_parameters={
                    "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64,
                },
                tie_word_embeddings=True,
            ),
            rows=[one(251), one(67), one(139, "gaps"), one(241), one(29)],
            sequence=251, rows_per_step=2,  # 2, 2, 1
            optimizer=adamw(lr=3e-3, warmup=0.2, weight_decay=0.05, clip=3.0),
        ),
        Case(
            name="llama3",
            config=LlamaConfig(
                vocab_size=113, hidden_size=48, intermediate_size=67, num_hidden_layers=2,
                num_attention_heads=3, num_key_value_heads=1, head_dim=16, max_position_embeddings=5120,
                rms_norm_eps=1e-5,
                rope_parameters={
                    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 640,
                },
                attention_bias=True, tie_word_embeddings=False,
            ),
            rows=[one(499), one(83, "completion:20"), one(307), one(13), one(401, "gaps"), one(149), one(59)],
            sequence=499, rows_per_step=1,
            optimizer=adamw(lr=2e-3, warmup=0, weight_decay=0.1, clip=0.5, beta2=0.95, eps=1e-6),
            stored=torch.float32, shard="60KB",
        ),
        Case(
            name="packed",
            config=Qwen3Config(
                vocab_size=97, hidden_size=43, intermediate_size=61, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=512,
                rope_parameters={"rope_type": "default", "rope_theta": 1e6}, tie_word_embeddings=False,
            ),
            rows=[[Document(97), Document(131, "gaps"), Document(61, "completion:1")]],  # 289 of 307
            sequence=307, rows_per_step=1, packing="bfd",
            optimizer=adamw(lr=3e-3, warmup=2, weight_decay=0.1, clip=10.0),
        ),
        Case(
            name="llama_tied",
            config=LlamaConfig(
                vocab_size=101, hidden_size=44, intermediate_size=73, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=512,
                rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 5e5},
                attention_bias=False, mlp_bias=False, tie_word_embeddings=True,
            ),
            rows=[one(311), one(47, "gaps"), one(163), one(227, "all")],
            sequence=311, rows_per_step=2,
            optimizer=adamw(lr=5e-3, warmup=1, weight_decay=0.2, clip=2.0),
            stored=torch.float16, edit_config=old_style_config,
        ),
        Case(
            name="window",
            config=Qwen3Config(
                vocab_size=89, hidden_size=31, intermediate_size=47, num_hidden_layers=3,
                num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=512,
                rope_parameters={"rope_type": "default", "rope_theta": 1e6}, tie_word_embeddings=False,
                use_sliding_window=True, sliding_window=7,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            ),
            rows=[one(193), one(5), one(113, "gaps"), one(71), one(191)],
            sequence=193, rows_per_step=3,  # 3, 2
            optimizer=adamw(lr=3e-3, warmup=2, weight_decay=0.1, clip=1.6),
        ),
        Case(
            name="moe",
            config=experts_config(layers=2, experts=8, top=3, normalize=True),
            rows=[one(67), one(41, "gaps"), one(29, "completion:11"), one(73), one(2)],
            sequence=73, rows_per_step=3,  # 3, 2
            optimizer=adamw(lr=3e-3, warmup=2, weight_decay=0.1, clip=1.0), aux=0.03,
        ),
        Case(
            name="moe_mixed",
            config=experts_config(layers=3, experts=4, top=2, normalize=False, mlp_only_layers=[1]),
            rows=[one(61), one(53, "gaps"), one(37)],
            sequence=61, rows_per_step=2,  # 2, 1
            optimizer=adamw(lr=3e-3, warmup=2, weight_decay=0.1, clip=2.0),
        ),
        Case(
            name="moe_packed",
            config=experts_config(layers=2, experts=12, top=1, normalize=False, decoder_sparse_step=2),
            rows=[[Document(43), Document(31, "gaps"), Document(22, "completion:1")]],  # 96 of 101
            sequence=101, rows_per_step=1, packing="bfd",
            optimizer=adamw(lr=3e-3, warmup=2, weight_decay=0.1, clip=10.0), aux=0.05,
        ),
        Case(
            name="moe_all",
            config=experts_config(layers=2, experts=4, top=4, normalize=True),
            rows=[one(59), one(23)],
            sequence=59, rows_per_step=2,
            optimizer=adamw(lr=3e-3, warmup=1, weight_decay=0.1, clip=2.0), aux=0.01,
            stored=torch.float32, shard="20KB",
        ),
        Case(
            name="moe_starved",
            config=experts_config(layers=2, experts=8, top=2, normalize=True),
            rows=[one(71), one(47, "gaps")],
            sequence=71, rows_per_step=2,
            optimizer=adamw(lr=1e-3, warmup=2, weight_decay=0.1, clip=2.0), aux=0.02,
            bias={4: -3.0, 5: -3.0, 6: -3.0, 7: -3.0}, wanted=only({0, 1, 2, 3}),
        ),
        Case(
            name="moe_crowded",
            config=experts_config(layers=2, experts=8, top=1, normalize=False),
            rows=[one(79), one(31)],
            sequence=79, rows_per_step=2,
            optimizer=adamw(lr=1e-3, warmup=2, weight_decay=0.1, clip=2.0), aux=0.02,
            bias={5: 1.5}, wanted=only({5}),
        ),
    ]
