#include "train/trained.h"
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include "core/rng.h"
#include "io/checkpoint.h"
#include "ops/cpu/queue.h"
#include "support/backends.h"
#include "support/data.h"

namespace annulus::test {

SharedFolder::SharedFolder(Comm& world) : world_(world) {
  if (world.rank() == 0) mine_ = std::make_unique<TempFolder>();
  path_ = mine_ ? mine_->path("") : "";
  if (!path_.empty() && path_.back() == '/') path_.pop_back();
  world.broadcast(path_, 0);
}

SharedFolder::~SharedFolder() {
  world_.barrier();
}

void on_ranks(Comm& world, int ranks, const std::function<void(Comm&)>& work) {
  const std::unique_ptr<Comm> group = world.split(world.rank() < ranks ? 0 : 1);
  if (world.rank() < ranks) work(*group);
  world.barrier();
}

std::string base_of(const std::string& name) {
  const std::string all = test_data("tests/oracle") + "/";
  std::ifstream in(all + name + "/expected.json");
  return all + nlohmann::json::parse(in).value("base", name);
}

RunConfig tiny_run(const std::string& name, const std::vector<std::string>& flags) {
  const std::string folder = test_data("tests/oracle") + "/" + name;
  std::vector<std::string> args = {folder + "/run.ini"};
  const auto given = [&](const std::string& key) {
    for (const std::string& f : flags)
      if (f == key) return true;
    return false;
  };
  const std::string base = base_of(name);
  if (!given("--model.path")) args.insert(args.end(), {"--model.path", base + "/model"});
  if (!given("--data.train")) args.insert(args.end(), {"--data.train", base + "/data.jsonl"});
  if (base != folder && !given("--checkpoint.resume") && !given("--lora.rank"))
    args.insert(args.end(), {"--checkpoint.resume", folder + "/adapter"});
  args.insert(args.end(), {"--checkpoint.final", "none", "--device.precision", "f32"});
  args.insert(args.end(), flags.begin(), flags.end());
  RunConfig run = parse_run_config(args);
  run.train.log_every = 1000000;
  validate(run);
  return run;
}

Life live(Comm& world, const RunConfig& run, std::optional<std::int64_t> stop_after) {
  Backend* const backend = &tested();
  const Node node{.host = host_name(), .index = 0, .local_rank = world.rank(), .local_size = world.size()};
  Life life;
  install_stop_signals();
  Trainer trainer(world, node, *backend, run);
  while (trainer.more()) {
    const bool stop = stop_after && trainer.steps_done() == *stop_after;
    if (stop && world.rank() == world.size() - 1) std::raise(SIGUSR1);
    trainer.step();
    if (!stop) life.steps.push_back(trainer.report());
  }
  clear_stop_signals();
  life.exit = trainer.finish();
  return life;
}

Gradients read_all(const std::string& h5) {
  Gradients all;
  const auto reader = open_h5(h5);
  for (const DatasetSpec& d : reader->datasets()) {
    std::int64_t n = 1;
    for (const std::int64_t extent : d.shape) n *= extent;
    std::vector<float>& values = all[d.dataset];
    values.resize(static_cast<std::size_t>(n));
    reader->read(d.dataset, 0, n, make_tensor("leaf", values.data(), DType::f32, {n}));
  }
  return all;
}

std::string token_rows(const std::vector<std::int64_t>& lengths, const std::vector<std::int64_t>& targets,
                       std::int64_t vocabulary) {
  std::string text;
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    std::string ids, labels;
    for (std::int64_t i = 0; i < lengths[row]; ++i) {
      const auto bits = draw(7, Draw::test, row, static_cast<std::uint64_t>(i))[0];
      const std::string id = std::to_string(bits % static_cast<std::uint32_t>(vocabulary));
      const bool target = targets.empty() || targets[row] < 0 || i >= lengths[row] - targets[row];
      ids += (i > 0 ? "," : "") + id;
      labels += (i > 0 ? "," : "") + (target ? id : std::string("-100"));
    }
    text += "{\"input_ids\":[" + ids + "],\"labels\":[" + labels + "]}\n";
  }
  return text;
}

}  // namespace annulus::test
