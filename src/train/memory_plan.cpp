#include "train/memory_plan.h"
#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <utility>
#include <vector>
#include "core/gigabytes.h"

namespace annulus {
namespace {

/// The number in a file of one number; `missing` when there is none ("max", say).
std::int64_t number_in(const std::string& path, std::int64_t missing) {
  std::ifstream in(path);
  std::int64_t n = 0;
  return in >> n ? n : missing;
}

std::int64_t entry_in(const std::string& path, const std::string& key, std::int64_t missing) {
  std::ifstream in(path);
  for (std::string word; in >> word;)
    if (word == key) return in >> missing ? missing : 0;
  return missing;
}

/// The rest of one control group; files that the kernel may drop count as free.
std::int64_t group_rest(const std::string& folder, const char* limit, const char* used) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const std::int64_t most = number_in(folder + limit, kNone);
  if (most > kNone / 2) return kNone;  // version 1 writes a huge number for "no limit"
  return most - number_in(folder + used, 0) + entry_in(folder + "/memory.stat", "inactive_file", 0);
}

}  // namespace

LocalRow plain_row(const EngineSpec& s) {
  const RowShape shape{.sequence = s.run.data.sequence, .used = s.run.data.sequence, .starts = {0}};
  const std::vector<std::int64_t> windows = s.model.distinct_windows();
  return {.map = RowMap(shape, s.grid.ring, s.grid.ulysses, s.per_member, windows),
          .ids = {},
          .targets = {},
          .positions = {}};
}

Layout plan_memory(const EngineSpec& spec, const Node& node, Place place, const Ops* sizes, bool with_eval) {
  const auto dry = make_dry_backend(place, sizes);
  Engine engine(*dry, make_loopback_groups(*dry, spec.grid, node, spec.run.parallel.shard),
                std::make_unique<Arena>(dry->queue(), dry->memory()), spec, [] {});
  const LocalRow row = plain_row(spec);
  if (!spec.frozen) {
    engine.masters_filled();
    engine.micro(row, 1.0);
    engine.update(0.0, 1);
    if (spec.probe) engine.probe(row, 1.0, [](const AttentionTensors&) {});
  }
  if (with_eval) engine.eval(row);
  return engine.arena().layout();
}

std::string describe(const Layout& layout) {
  std::string text;
  for (int r = 0; r < kRegions; ++r)
    text += std::string(r > 0 ? ", " : "") + name_of(static_cast<Region>(r)) + " " +
            gigabytes(layout.region_bytes[r]);
  return text + "; in all " + gigabytes(layout.total_bytes());
}

std::int64_t host_bytes_free() {
  std::int64_t free =
      entry_in("/proc/meminfo", "MemAvailable:", std::numeric_limits<std::int64_t>::max() >> 10) << 10;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t a = line.find(':'), b = line.find(':', a + 1);
    if (b == std::string::npos) continue;
    const std::string controllers = line.substr(a + 1, b - a - 1), path = line.substr(b + 1);
    if (controllers.empty()) {
      // In a container the group's own path is often not mounted; its root is.
      for (const std::string& folder : {"/sys/fs/cgroup" + path, std::string("/sys/fs/cgroup")})
        free = std::min(free, group_rest(folder, "/memory.max", "/memory.current"));
    } else if (controllers.find("memory") != std::string::npos) {
      for (const std::string& folder : {"/sys/fs/cgroup/memory" + path, std::string("/sys/fs/cgroup/memory")})
        free = std::min(free, group_rest(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes"));
    }
  }
  return free;
}

void check_host_memory(Comm& world, const EngineSpec& spec, const Node& node, const Ops* sizes,
                       bool with_eval, std::int64_t bytes, std::int64_t free) {
  agreed(world, "checking memory", [&] {
    const std::int64_t each = free / node.local_size;
    if (bytes <= each) return;
    struct Lever {
      std::string key;
      std::function<void(EngineSpec&)> pull;
    };
    const std::int64_t key_heads = share_heads(spec.model.H, spec.model.G, spec.grid.ulysses).G;
    const Lever levers[] = {
        {"memory.recompute=layer", [](EngineSpec& s) { s.options.recompute = true; }},
        {"memory.loss_tile=128", [](EngineSpec& s) { s.options.loss_tile = 128; }},
        {"memory.mlp_tile=1024", [](EngineSpec& s) { s.options.mlp_tile = s.options.expert_tile = 1024; }},
        {"memory.keep_attention=false", [](EngineSpec& s) { s.options.keep_attention = false; }},
        {"memory.attention_groups=" + std::to_string(key_heads),
         [&](EngineSpec& s) { s.run.memory.attention_groups = key_heads; }}};
    EngineSpec less = spec;
    std::string pulled;
    std::int64_t before = bytes;
    for (const Lever& lever : levers) {
      lever.pull(less);
      const std::int64_t then = plan_memory(less, node, Place::host, sizes, with_eval).total_bytes();
      if (then >= before) continue;
      before = then;
      pulled += (pulled.empty() ? "" : " with ") + lever.key;
      if (then <= each) {
        environment_error("the job does not fit: each rank of host " + node.host + " needs " +
                          gigabytes(bytes) + " and may take " + gigabytes(each) + " (" + gigabytes(free) +
                          " free, " + std::to_string(node.local_size) + " ranks); " + pulled +
                          " would need " + gigabytes(then));
      }
    }
    environment_error("the job does not fit: each rank of host " + node.host + " needs " + gigabytes(bytes) +
                      " and may take " + gigabytes(each) + " (" + gigabytes(free) + " free, " +
                      std::to_string(node.local_size) +
                      " ranks); use more hosts with a larger parallel.context, or a shorter data.sequence");
  });
}

/// Libraries load code and workspaces later, and fragmentation takes a little.
std::int64_t device_budget(const Backend& backend, double limit_gb) {
  constexpr std::int64_t kReserve = 1'000'000'000;
  const std::int64_t free = backend.device_free_bytes() - kReserve;
  if (limit_gb == 0) return free;
  return std::min(free, static_cast<std::int64_t>(limit_gb * 1e9) - backend.device_used_bytes() - kReserve);
}

/// Pinned bytes of the optimizer's state, with optimizer.offload.
std::int64_t offloaded_state_bytes(const EngineSpec& spec, const Node& node) {
  if (!spec.run.optimizer.offload) return 0;
  const auto dry = make_dry_backend(Place::device, nullptr);
  Engine engine(*dry, make_loopback_groups(*dry, spec.grid, node, spec.run.parallel.shard),
                std::make_unique<Arena>(dry->queue(), dry->memory()), spec, [] {});
  return engine.state().host_bytes();
}

/// Input, attention output, log-sum-exp, chosen experts; without recomputation the other inputs of the
/// backward too.
std::int64_t saved_bytes(const EngineSpec& s) {
  const std::int64_t T =
      RowMap::padded(s.run.data.sequence, s.grid.ring, s.grid.ulysses, s.per_member) / s.grid.context();
  const ModelConfig& c = s.model;
  const std::int64_t width = bytes_of(s.options.compute);
  const bool all = !s.options.recompute, attention = all || s.options.keep_attention;
  std::int64_t row = c.C * width;
  if (attention) row += c.H * (c.D * width + bytes_of(DType::f32));
  if (all) row += (c.C + 2 * c.F + (c.H + 2 * c.G) * c.D) * width;
  row += c.K * bytes_of(DType::i32);
  return T * row;
}

namespace {

std::int64_t layers_on_host(const EngineSpec& s, const MemoryBudget& budget) {
  return std::min(s.model.L,
                  std::max<std::int64_t>(0, budget.host) / std::max<std::int64_t>(1, saved_bytes(s)));
}

std::int64_t device_bytes(EngineSpec s, std::int64_t layers, const Node& node, const Ops* sizes,
                          bool with_eval) {
  s.options.offload_layers = layers;
  return plan_memory(s, node, Place::device, sizes, with_eval).total_bytes();
}

}  // namespace

std::int64_t fewest_offloaded(const EngineSpec& spec, const Node& node, const Ops* sizes, bool with_eval,
                              const MemoryBudget& budget) {
  const std::string& mode = spec.run.memory.offload;
  const std::int64_t most = layers_on_host(spec, budget), L = spec.model.L;
  const auto fits = [&](std::int64_t layers) {
    return device_bytes(spec, layers, node, sizes, with_eval) <= budget.device;
  };
  std::int64_t low = mode == "all" ? L : 0, high = mode == "none" ? 0 : mode == "all" ? L : most;
  if (budget.host < 0 || high > most || !fits(high)) return -1;
  while (low < high) {
    const std::int64_t mid = (low + high) / 2;
    if (fits(mid))
      high = mid;
    else
      low = mid + 1;
  }
  return low;
}

void fit_memory(EngineSpec& spec, Comm& world, const Node& node, Backend& backend, bool with_eval,
                const std::function<void(const std::string&)>& say, int sharing) {
  if (backend.memory().place() == Place::host) {
    if (spec.run.memory.limit > 0)
      usage_error(
          "memory.limit is of a GPU's memory, and this run is on a CPU; leave it out, or set "
          "device.kind=cuda");
    // Nothing is gained, but a run does as it is told.
    if (spec.run.memory.offload == "all") spec.options.offload_layers = spec.model.L;
    return;
  }
  const std::int64_t L = spec.model.L;
  const std::int64_t state = offloaded_state_bytes(spec, node);
  const MemoryBudget budget{
      .device = device_budget(backend, spec.run.memory.limit),
      .host = host_bytes_free() / 10 * 9 / (sharing > 0 ? sharing : node.local_size) - state};
  const auto fewest = [&] { return fewest_offloaded(spec, node, &backend.ops(), with_eval, budget); };
  std::int64_t layers = fewest();
  if (world.max(layers < 0 ? 1 : 0) > 0 && !spec.options.lean_backward) {
    spec.options.lean_backward = true;
    layers = fewest();
  }
  const bool failed = layers < 0;
  agreed(world, "fitting the device's memory", [&] {
    if (!failed) return;
    const std::int64_t most = spec.run.memory.offload == "none" ? 0 : layers_on_host(spec, budget);
    environment_error("the job does not fit: rank " + std::to_string(spec.grid.rank) + " on host " +
                      node.host + " needs " +
                      gigabytes(device_bytes(spec, most, node, &backend.ops(), with_eval)) +
                      " of the device with the saved tensors of " + std::to_string(most) + " of " +
                      std::to_string(L) + " layers on the host, and may take " + gigabytes(budget.device) +
                      " (host memory: " + gigabytes(budget.host + state) + " a rank, of which " +
                      gigabytes(state) + " for the optimizer's state and " + gigabytes(saved_bytes(spec)) +
                      " a layer); use more ranks with a larger parallel.context, memory.offload=auto, "
                      "optimizer.offload=true, optimizer.state=bf16, or a shorter data.sequence");
  });
  spec.options.offload_layers = world.max(layers);
  if (state > 0) say("the optimizer's state goes to pinned host memory, " + gigabytes(state) + " a rank");
  if (spec.options.offload_layers > 0)
    say("saved tensors of " + std::to_string(spec.options.offload_layers) + " of " + std::to_string(L) +
        " layers go to pinned host memory, " + gigabytes(spec.options.offload_layers * saved_bytes(spec)) +
        " a rank");
}

}  // namespace annulus
