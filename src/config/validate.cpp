// What no key alone can get wrong: values that contradict each other, and what this build does not do.
#include <cmath>
#include "config/keys.h"
#include "config/lora.h"
#include "config/run_config.h"
#include "config/values.h"
#include "core/check.h"

namespace annulus {
namespace {

std::string number(std::int64_t n) {
  return std::to_string(n);
}

/// "WHAT is GIVEN, but REASON; MEND".
void refuse_if(bool wrong, const std::string& what, const std::string& given, const std::string& reason,
               const std::string& mend) {
  if (wrong)
    usage_error(what + " is " + (given.empty() ? "not given" : given) + ", but " + reason + "; " + mend);
}

/// A config that was made in code is held to the same ranges as one that was read.
void check_ranges(const RunConfig& config) {
  for (const Key& k : keys()) {
    RunConfig scratch;
    for (const std::string& text : written_values(k, config))
      if (const std::string why = read_value(k, text, scratch); !why.empty())
        usage_error(k.full() + " is \"" + text + "\": " + why);
  }
}

void check_model(const RunConfig& c) {
  const ModelSection& m = c.model;
  refuse_if(m.path.empty(), "model.path", "", "every run needs a model",
            "give a Hugging Face folder or an Annulus .h5 file");
  const bool scaled = m.rope_type == "yarn" || m.rope_type == "llama3";
  refuse_if(scaled && m.rope_factor == 0, "model.rope.type", m.rope_type, "model.rope.factor is not given",
            "say by how much positions are stretched");
  refuse_if(m.rope_type == "default" && m.rope_factor != 0, "model.rope.factor", shortest(m.rope_factor),
            "model.rope.type is default, which does not scale", "leave one of them out");
  refuse_if(m.rope_type == "default" && m.rope_original_positions != 0, "model.rope.original_positions",
            number(m.rope_original_positions), "model.rope.type is default, which does not scale",
            "leave one of them out");
  refuse_if(m.rope_factor != 0 && m.rope_factor < 1, "model.rope.factor", shortest(m.rope_factor),
            "positions are stretched, not squeezed", "give a factor of at least 1");
}

void check_data(const RunConfig& c, Purpose purpose) {
  const DataSection& d = c.data;
  refuse_if(purpose == Purpose::train && d.train.empty(), "data.train", "", "training needs data",
            "give at least one file, one line or flag each");
  refuse_if(purpose == Purpose::eval && d.eval.empty(), "data.eval", "", "evaluation needs data",
            "give at least one file, one line or flag each");
  refuse_if(c.train.eval_every > 0 && d.eval.empty(), "train.eval_every", number(c.train.eval_every),
            "data.eval names no file", "give data.eval, or 0 for no evaluation");
  refuse_if(c.train.eval_positions > d.sequence, "train.eval_positions", number(c.train.eval_positions),
            "data.sequence is " + number(d.sequence), "a bucket needs at least one position");
  refuse_if(purpose == Purpose::train && c.checkpoint.best && (d.eval.empty() || c.train.eval_every == 0),
            "checkpoint.best", "true", "nothing is evaluated on the way",
            "give data.eval and train.eval_every, or leave it out");
  const bool cuts = d.packing == "bfd" || d.packing == "none";
  refuse_if(
      cuts && d.max_length > d.sequence, "data.max_length", number(d.max_length),
      "data.packing=" + d.packing + " cuts documents at data.sequence=" + number(d.sequence) + " anyway",
      "give at most data.sequence, or pack by bfd_split or wrapped");
  const bool plain = d.format == "text" || d.format == "tokens";
  refuse_if(d.join > 0 && d.format != "text" && d.format != "auto", "data.join", number(d.join),
            "data.format is " + d.format + " and only texts are joined", "take data.format=text, or join 0");
  refuse_if(d.loss_on == "assistant" && (d.format == "text" || d.format == "prompt_completion"),
            "data.loss_on", "assistant", "data.format=" + d.format + " has no turns",
            "take data.loss_on=auto, or data.format=messages");
  refuse_if(d.loss_on == "completion" && (d.format == "text" || d.format == "messages"), "data.loss_on",
            "completion", "data.format=" + d.format + " has no completions",
            "take data.loss_on=auto, or data.format=prompt_completion");
  refuse_if(d.chat != "auto" && plain, "data.chat", d.chat, "data.format=" + d.format + " has no turns",
            "leave data.chat out, or take data.format=messages");
  refuse_if(d.format == "tokens" && d.tokenizer != "auto", "data.tokenizer", d.tokenizer,
            "data.format=tokens is tokenized already", "leave data.tokenizer out");
  refuse_if(d.allow_special && (d.tokenizer == "bytes" || d.format == "tokens"), "data.allow_special", "true",
            "no text is searched for special tokens here", "leave it out");
  refuse_if(d.tokenizer == "bytes" && d.format == "messages", "data.tokenizer", "bytes",
            "data.format=" + d.format + " needs special tokens",
            "take data.format=text, or a tokenizer.json");
}

void check_schedule(const RunConfig& c) {
  const OptimizerSection& o = c.optimizer;
  refuse_if(o.warmup >= 1 && o.warmup != std::floor(o.warmup), "optimizer.warmup", shortest(o.warmup),
            "from 1 on it counts steps", "give a whole number, or a fraction below 1");
  refuse_if(c.train.steps > 0 && o.warmup >= 1 && o.warmup > static_cast<double>(c.train.steps),
            "optimizer.warmup", shortest(o.warmup), "train.steps is " + number(c.train.steps),
            "warm up for at most all steps");
}

void check_layout(const RunConfig& c) {
  const ParallelSection& p = c.parallel;
  refuse_if(p.context % p.ulysses != 0, "parallel.ulysses", number(p.ulysses),
            "it does not divide parallel.context=" + number(p.context), "give one of its divisors");
  refuse_if(2 * p.context > c.data.sequence, "parallel.context", number(p.context),
            "data.sequence is " + number(c.data.sequence),
            "a row needs at least two tokens a rank: lengthen it or take fewer ranks");
}

void check_device(const RunConfig& c) {
  const DeviceSection& d = c.device;
  const bool cpu = d.kind == "cpu";
  refuse_if(cpu && d.precision == "bf16", "device.precision", "bf16", "device.kind=cpu trains in f32",
            "give f32 or auto");
  const bool f32 = d.precision == "f32" || cpu;
  refuse_if(c.optimizer.state == "bf16" && f32, "optimizer.state", "bf16",
            "the weights themselves are the state then and device.precision is f32",
            "device.precision must be bf16 (on cuda), or optimizer.state f32");
  refuse_if(cpu && d.share, "device.share", "true", "device.kind=cpu has no GPU to share", "leave it out");
  refuse_if(cpu && c.memory.offload != "none", "memory.offload", c.memory.offload,
            "with device.kind=cpu tensors are in host memory already", "give none");
  refuse_if(cpu && c.optimizer.offload, "optimizer.offload", "true",
            "with device.kind=cpu the state is in host memory already", "give false");
  refuse_if(cpu && c.memory.limit > 0, "memory.limit", shortest(c.memory.limit),
            "with device.kind=cpu tensors are in host memory", "leave it out");
  refuse_if(c.memory.recompute == "none" && c.memory.keep_attention == "false", "memory.keep_attention",
            "false", "memory.recompute=none keeps everything", "give auto, or memory.recompute=layer");
}

void check_lora(const RunConfig& c) {
  const LoraSection& l = c.lora;
  if (l.rank > 0) {
    refuse_if(l.base == "fp8", "lora.base", "fp8", "frozen weights are not kept in fp8 by this build",
              "give bf16");
    check_targets(l);
    return;
  }
  const std::string no_rank = "lora.rank is 0, so that there are no adapters";
  refuse_if(!l.targets.empty(), "lora.targets", l.targets.empty() ? "" : l.targets.front(), no_rank,
            "give lora.rank, or leave the targets out");
  refuse_if(l.alpha > 0, "lora.alpha", shortest(l.alpha), no_rank, "give lora.rank, or leave it out");
  refuse_if(l.rslora, "lora.rslora", "true", no_rank, "give lora.rank, or leave it out");
  refuse_if(l.base == "fp8", "lora.base", "fp8", no_rank, "give lora.rank, or bf16");
}

/// PHASE:RANK[:kill or enospc]
bool well_formed_fault(const std::string& text) {
  const std::size_t first = text.find(':');
  if (first == std::string::npos || first == 0) return false;
  const std::size_t second = text.find(':', first + 1);
  const std::string rank = text.substr(first + 1, second == std::string::npos ? second : second - first - 1);
  if (rank.empty() || rank.size() > 7 || rank.find_first_not_of("0123456789") != std::string::npos)
    return false;
  return second == std::string::npos || text.substr(second + 1) == "kill" ||
         text.substr(second + 1) == "enospc";
}

}  // namespace

void validate(const RunConfig& c, Purpose purpose) {
  check_ranges(c);
  check_model(c);
  check_data(c, purpose);
  check_schedule(c);
  check_layout(c);
  check_device(c);
  check_lora(c);
  refuse_if(c.run.dir.empty(), "run.dir", "", "a run needs a folder", "name one that can be written");
  refuse_if(c.checkpoint.resume.empty(), "checkpoint.resume", "", "it must be auto, none or a path",
            "give auto");
  refuse_if(!c.debug.fail.empty() && !well_formed_fault(c.debug.fail), "debug.fail", c.debug.fail,
            "it must be PHASE:RANK, PHASE:RANK:kill or PHASE:RANK:enospc", "leave it out unless for a test");
}

}  // namespace annulus
