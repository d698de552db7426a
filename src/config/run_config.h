// The run: one struct a section, one field a key. Field name = key in the section = flag --section.key.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace annulus {

struct ModelSection {
  std::string path;                 // Hugging Face folder, or an Annulus .h5
  std::string init = "pretrained";  // pretrained, random
  // rope.* overrides; unset: as in config.json
  std::string rope_type;                     // rope.type
  double rope_factor = 0;                    // rope.factor
  std::int64_t rope_original_positions = 0;  // rope.original_positions
  double rope_theta = 0;                     // rope.theta
};

struct DataSection {
  std::vector<std::string> train, eval;
  std::string format = "auto";     // auto, text, messages, prompt_completion, tokens
  std::string tokenizer = "auto";  // auto (the model folder's tokenizer.json), bytes, or a path
  std::string chat = "auto";
  std::int64_t sequence = 1024;  // tokens of a packed row
  std::int64_t max_length = 0;   // tokens at which a document is cut; 0: only packing cuts
  std::int64_t join = 0;         // texts joined into documents of at least so many tokens; 0: not
  std::int64_t take = 0;         // documents; 0: all
  std::string packing = "bfd";   // bfd, bfd_split, wrapped, none
  std::string loss_on = "auto";  // auto, all, completion, assistant
  double epochs = 3;
  bool shuffle = true;  // rows, by (seed, epoch)
  std::int64_t skip_bad = 0;
  bool allow_special = false;
};

struct TrainSection {
  std::int64_t steps = 0;  // 0: by epochs
  std::int64_t rows = 0;   // packed rows per optimizer step over all ranks; 0: one per data group
  std::int64_t seed = 42;
  std::int64_t eval_every = 0;
  std::int64_t log_every = 1;
};

struct OptimizerSection {
  double lr = 2e-5;
  std::string schedule = "linear";  // constant, linear, cosine
  double warmup = 0;                // steps; below 1: a fraction of all steps
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
  double clip = 1.0;              // 0: off
  std::string state = "f32";      // f32, bf16
  std::string gradients = "f32";  // f32, bf16
  bool offload = false;
};

struct ParallelSection {
  std::int64_t context = 1, ulysses = 1, expert = 1;
  std::string shard = "world";  // world, node, none
};

struct MemorySection {
  std::string recompute = "layer";      // layer, none
  std::string keep_attention = "auto";  // auto, true, false
  std::string offload = "none";         // none, auto, all
  double limit = 0;                     // GB that auto may use; 0: what the device has
  std::int64_t mlp_tile = 0;            // tokens; 0: chosen
  std::int64_t loss_tile = 0;           // tokens; 0: chosen
  std::int64_t attention_groups = 1;
};

struct LoraSection {
  std::int64_t rank = 0;             // 0: no LoRA
  double alpha = 0;                  // 0: PEFT's default (config/lora.h settles it)
  std::vector<std::string> targets;  // none: PEFT's default
  bool rslora = false;
  std::string base = "bf16";  // of the frozen weights: bf16 (f32 where the run computes in f32), fp8
};

struct MoeSection {
  double aux_coefficient = -1;  // below 0: the model's own
  double imbalance = 1.25;
};

struct CheckpointSection {
  std::int64_t every = 0;  // steps; 0: only at the end and when stopped
  double minutes = 0;
  std::int64_t keep = 2;
  std::string background = "auto";  // auto, true, false
  std::string resume = "auto";      // auto, none, or a path (a checkpoint, or an adapter folder)
  std::string final = "hf";         // hf, h5, none
};

struct DeviceSection {
  std::string kind = "auto";       // auto, cpu, cuda
  std::string precision = "auto";  // auto (bf16 on cuda, f32 on cpu), f32, bf16
  bool deterministic = false;
  bool share = false;
};

struct RunSection {
  std::string dir = "runs/default";
  std::int64_t until = 0;  // epoch seconds; 0: no limit
  double stall_seconds = 1800;
};

struct DebugSection {
  std::string gradients;  // PATH
  std::string fail;       // PHASE:RANK[:kill or enospc]
};

struct RunConfig {
  ModelSection model;
  DataSection data;
  TrainSection train;
  OptimizerSection optimizer;
  ParallelSection parallel;
  MemorySection memory;
  LoraSection lora;
  MoeSection moe;
  CheckpointSection checkpoint;
  DeviceSection device;
  RunSection run;
  DebugSection debug;
};

/// Reads `[run.ini] [--section.key value ...]`; any flag replaces the file's value or list. Relative paths in
/// a file are relative to the working directory. Usage errors name the key, what was given, what is allowed
/// and the nearest known key.
RunConfig parse_run_config(const std::vector<std::string>& args);
/// What a configuration is for: it decides what must be given.
enum class Purpose : std::uint8_t { train, eval, plan };
/// Checks ranges and contradictions that need no file and no world size.
void validate(const RunConfig&, Purpose = Purpose::train);
/// The INI text that reproduces the run; parsing it back is the identity.
std::string print_config(const RunConfig&);
/// All keys by section, one line of help each, what is allowed, and the default.
std::string config_help();

}  // namespace annulus
