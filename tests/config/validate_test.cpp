// Contradictions between keys: each ends in a usage error that names the key.
#include <boost/test/unit_test.hpp>
#include "config/run_config.h"
#include "support/refusal.h"

using namespace annulus;
using annulus::test::check_refused;

namespace {

RunConfig good() {
  RunConfig c;
  c.model.path = "models/tiny";
  c.data.train = {"book.txt"};
  return c;
}

struct Bad {
  const char* key;
  const char* also;  // what else the sentence must say
  void (*spoil)(RunConfig&);
};

const Bad kBad[] = {
    {"model.path", "not given", [](RunConfig& c) { c.model.path.clear(); }},
    {"model.rope.type", "model.rope.factor", [](RunConfig& c) { c.model.rope_type = "yarn"; }},
    {"model.rope.factor", "default",
     [](RunConfig& c) { c.model.rope_type = "default", c.model.rope_factor = 4; }},
    {"model.rope.original_positions", "default",
     [](RunConfig& c) { c.model.rope_type = "default", c.model.rope_original_positions = 4096; }},
    {"model.rope.factor", "at least 1", [](RunConfig& c) { c.model.rope_factor = 0.5; }},
    {"model.init", "pretrained or random", [](RunConfig& c) { c.model.init = "zeros"; }},
    {"data.train", "not given", [](RunConfig& c) { c.data.train.clear(); }},
    {"train.eval_every", "data.eval", [](RunConfig& c) { c.train.eval_every = 10; }},
    {"data.max_length", "data.sequence=1024", [](RunConfig& c) { c.data.max_length = 1025; }},
    {"data.max_length", "packing=none",
     [](RunConfig& c) { c.data.max_length = 2048, c.data.packing = "none"; }},
    {"data.join", "tokens", [](RunConfig& c) { c.data.join = 512, c.data.format = "tokens"; }},
    {"data.join", "messages", [](RunConfig& c) { c.data.join = 512, c.data.format = "messages"; }},
    {"data.loss_on", "no turns", [](RunConfig& c) { c.data.loss_on = "assistant", c.data.format = "text"; }},
    {"data.loss_on", "prompt_completion",
     [](RunConfig& c) { c.data.loss_on = "assistant", c.data.format = "prompt_completion"; }},
    {"data.loss_on", "no completions",
     [](RunConfig& c) { c.data.loss_on = "completion", c.data.format = "messages"; }},
    {"data.chat", "no turns", [](RunConfig& c) { c.data.chat = "qwen3", c.data.format = "text"; }},
    {"data.tokenizer", "tokenized already",
     [](RunConfig& c) { c.data.tokenizer = "bytes", c.data.format = "tokens"; }},
    {"data.tokenizer", "special tokens",
     [](RunConfig& c) { c.data.tokenizer = "bytes", c.data.format = "messages"; }},
    {"data.allow_special", "special",
     [](RunConfig& c) { c.data.allow_special = true, c.data.tokenizer = "bytes"; }},
    {"data.packing", "bfd_split", [](RunConfig& c) { c.data.packing = "first_fit"; }},
    {"data.format", "prompt_completion", [](RunConfig& c) { c.data.format = "csv"; }},
    {"data.sequence", "from 2", [](RunConfig& c) { c.data.sequence = 1; }},
    {"data.sequence", "1073741824", [](RunConfig& c) { c.data.sequence = std::int64_t{1} << 40; }},
    {"data.epochs", "above 0", [](RunConfig& c) { c.data.epochs = 0; }},
    {"optimizer.warmup", "train.steps is 10",
     [](RunConfig& c) { c.optimizer.warmup = 11, c.train.steps = 10; }},
    {"optimizer.warmup", "whole number", [](RunConfig& c) { c.optimizer.warmup = 1.5; }},
    {"optimizer.schedule", "constant, linear or cosine", [](RunConfig& c) { c.optimizer.schedule = "wsd"; }},
    {"optimizer.clip", "from 0", [](RunConfig& c) { c.optimizer.clip = -1; }},
    {"optimizer.lr", "finite",
     [](RunConfig& c) { c.optimizer.lr = std::numeric_limits<double>::quiet_NaN(); }},
    {"optimizer.state", "device.precision must be bf16",
     [](RunConfig& c) { c.optimizer.state = "bf16", c.device.precision = "f32"; }},
    {"optimizer.state", "device.precision must be bf16",
     [](RunConfig& c) { c.optimizer.state = "bf16", c.device.kind = "cpu"; }},
    {"optimizer.offload", "host memory",
     [](RunConfig& c) { c.optimizer.offload = true, c.device.kind = "cpu"; }},
    {"parallel.ulysses", "parallel.context=6",
     [](RunConfig& c) { c.parallel.context = 6, c.parallel.ulysses = 4; }},
    {"memory.limit", "host memory", [](RunConfig& c) { c.memory.limit = 3, c.device.kind = "cpu"; }},
    {"parallel.context", "two tokens a rank",
     [](RunConfig& c) { c.parallel.context = 4, c.data.sequence = 7; }},
    {"parallel.context", "from 1", [](RunConfig& c) { c.parallel.context = 0; }},
    {"parallel.expert", "from 1", [](RunConfig& c) { c.parallel.expert = 0; }},
    {"parallel.shard", "world, node or none", [](RunConfig& c) { c.parallel.shard = "full"; }},
    {"memory.keep_attention", "auto, true or false", [](RunConfig& c) { c.memory.keep_attention = "yes"; }},
    {"memory.keep_attention", "memory.recompute=none",
     [](RunConfig& c) { c.memory.keep_attention = "false", c.memory.recompute = "none"; }},
    {"memory.attention_groups", "from 0", [](RunConfig& c) { c.memory.attention_groups = -1; }},
    {"memory.offload", "host memory", [](RunConfig& c) { c.memory.offload = "all", c.device.kind = "cpu"; }},
    {"device.precision", "f32 or auto",
     [](RunConfig& c) { c.device.precision = "bf16", c.device.kind = "cpu"; }},
    {"device.share", "no GPU", [](RunConfig& c) { c.device.share = true, c.device.kind = "cpu"; }},
    {"lora.base", "not kept in fp8",
     [](RunConfig& c) {
       c.lora.rank = 8;
       c.lora.base = "fp8";
     }},
    {"lora.targets", "nearest is gate_proj",
     [](RunConfig& c) {
       c.lora.rank = 8;
       c.lora.targets = {"q_proj", "gate_prj"};
     }},
    {"lora.targets", "lora.rank is 0", [](RunConfig& c) { c.lora.targets = {"q_proj"}; }},
    {"lora.alpha", "lora.rank is 0", [](RunConfig& c) { c.lora.alpha = 16; }},
    {"lora.rslora", "lora.rank is 0", [](RunConfig& c) { c.lora.rslora = true; }},
    {"lora.base", "lora.rank is 0", [](RunConfig& c) { c.lora.base = "fp8"; }},
    {"moe.imbalance", "from 1", [](RunConfig& c) { c.moe.imbalance = 0.5; }},
    {"checkpoint.keep", "from 1", [](RunConfig& c) { c.checkpoint.keep = 0; }},
    {"checkpoint.resume", "auto", [](RunConfig& c) { c.checkpoint.resume.clear(); }},
    {"run.dir", "folder", [](RunConfig& c) { c.run.dir.clear(); }},
    {"run.dir", "contains #", [](RunConfig& c) { c.run.dir = "runs/#1"; }},
    {"run.stall_seconds", "above 0", [](RunConfig& c) { c.run.stall_seconds = 0; }},
    {"debug.fail", "PHASE:RANK", [](RunConfig& c) { c.debug.fail = "save"; }},
    {"debug.fail", "PHASE:RANK", [](RunConfig& c) { c.debug.fail = "save:x"; }},
    {"debug.fail", "PHASE:RANK", [](RunConfig& c) { c.debug.fail = "save:1:burn"; }},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(config)

BOOST_AUTO_TEST_CASE(each_contradiction_is_named) {
  for (const Bad& bad : kBad) {
    RunConfig c = good();
    bad.spoil(c);
    check_refused(Exit::usage, {bad.key, bad.also}, [&] { validate(c); });
  }
}

BOOST_AUTO_TEST_CASE(what_is_sound_passes) {
  BOOST_CHECK_NO_THROW(validate(good()));
  RunConfig c = good();
  c.debug.fail = "save:12:enospc";
  c.optimizer.warmup = 10;
  c.train.steps = 10;
  c.parallel.context = 6;
  c.data.max_length = 5000;
  c.data.packing = "bfd_split";
  c.data.join = 77;
  c.model.rope_type = "yarn";
  c.model.rope_factor = 4;
  BOOST_CHECK_NO_THROW(validate(c));
}

BOOST_AUTO_TEST_CASE(the_purpose_decides_what_must_be_given) {
  RunConfig c = good();
  c.data.train.clear();
  BOOST_CHECK_NO_THROW(validate(c, Purpose::plan));
  check_refused(Exit::usage, {"data.eval", "not given"}, [&] { validate(c, Purpose::eval); });
  c.data.eval = {"held_out.txt"};
  BOOST_CHECK_NO_THROW(validate(c, Purpose::eval));
}

BOOST_AUTO_TEST_SUITE_END()
