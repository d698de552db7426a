// Attention by what each query sees. `amount` counts 4 H D flop a visible pair forward, 10 H D backward.
#include <algorithm>
#include <cmath>
#include <memory>
#include "cases.h"
#include "core/rng.h"
#include "engines.h"

namespace annulus::bench {
namespace {

struct Scene {
  const char* name;
  std::int64_t tokens;
  Cover cover;
  std::int64_t document = 0, window = 0;  // 0: the whole row
  std::int64_t mixed = 0;  // most tokens of a document, where lengths differ; 0: all of `document`
  bool visit = false;      // of a ring: merged into running sums in f32, gradients added in f32
};

constexpr std::int64_t kShortest = 100;  // of mixed documents

/// Starts of documents and the row's end. Mixed lengths: their logarithms are uniform.
std::vector<std::int64_t> starts(const Scene& scene) {
  std::vector<std::int64_t> all{0};
  for (std::uint64_t i = 0; all.back() < scene.tokens; ++i) {
    std::int64_t length = scene.document > 0 ? scene.document : scene.tokens;
    if (scene.mixed > 0) {
      const double span = static_cast<double>(scene.mixed) / kShortest;
      length = std::llround(kShortest * std::pow(span, unit_interval(draw(0, Draw::test, 1, i)[0])));
    }
    all.push_back(std::min(scene.tokens, all.back() + length));
  }
  return all;
}

/// First key of each query, by position in the row. Keys of a full block all lie before its queries.
std::vector<std::int64_t> first_keys(const Scene& scene) {
  std::vector<std::int64_t> first(static_cast<std::size_t>(scene.tokens), 0);
  if (scene.cover == Cover::full) return first;
  const std::vector<std::int64_t> bounds = starts(scene);
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i)
    for (std::int64_t p = bounds[i]; p < bounds[i + 1]; ++p)
      first[static_cast<std::size_t>(p)] =
          scene.window > 0 ? std::max(bounds[i], p - scene.window + 1) : bounds[i];
  return first;
}

double visible_pairs(const Scene& scene) {
  const auto T = static_cast<double>(scene.tokens);
  if (scene.cover == Cover::full) return T * T;
  double pairs = T * (T + 1) / 2;
  for (const std::int64_t first : first_keys(scene)) pairs -= static_cast<double>(first);
  return pairs;
}

/// The tensors of a scene, and the forward that a backward needs.
struct Stage {
  std::vector<AttentionBlock> blocks;
  AttentionFwd forward;
};

/// One rank alone has one block and no running sums.
std::shared_ptr<Stage> set_up(const Sizes& s, const Scene& scene, Backend& b, Pool& p) {
  const bool full = scene.cover == Cover::full, visit = scene.visit;
  const std::int64_t T = scene.tokens;
  auto stage = std::make_shared<Stage>();
  stage->blocks = {
      {.q_count = T, .q_position = full ? T : 0, .k_count = T, .k_position = 0, .cover = scene.cover}};
  const Tensor none{};
  stage->forward = {.q = p.normal("q", DType::bf16, {T, s.H, s.D}),
                    .k = p.normal("k", DType::bf16, {T, s.G, s.D}),
                    .v = p.normal("v", DType::bf16, {T, s.G, s.D}),
                    .first = p.upload("first", first_keys(scene)),
                    .blocks = stage->blocks,
                    .acc = visit ? p.empty("acc", DType::f32, {T, s.H, s.D}) : none,
                    .lse = p.empty("lse", DType::f32, {s.H, T}),
                    .o = p.empty("o", DType::bf16, {T, s.H, s.D}),
                    .begins = true,
                    .ends = true,
                    .scale = 1.0 / std::sqrt(static_cast<double>(s.D))};
  stage->forward.workspace = p.scratch(b.ops().attention_fwd_bytes(stage->forward));
  b.ops().attention_fwd(Lane::compute, stage->forward);
  return stage;
}

Work forward_work(const Sizes& s, const Scene& scene, Backend& b, Pool& p) {
  const auto stage = set_up(s, scene, b, p);
  AttentionFwd& a = stage->forward;
  a.begins = a.ends = !scene.visit;
  a.workspace = p.scratch(b.ops().attention_fwd_bytes(a));
  return {[&b, stage] { b.ops().attention_fwd(Lane::compute, stage->forward); },
          {scene.visit ? a.acc : a.o, a.lse}};
}

Work backward_work(const Sizes& s, const Scene& scene, Backend& b, Pool& p) {
  const auto stage = set_up(s, scene, b, p);
  const AttentionFwd& f = stage->forward;
  const std::int64_t T = scene.tokens;
  const DType type = scene.visit ? DType::f32 : DType::bf16;
  AttentionBwd a{.q = f.q,
                 .k = f.k,
                 .v = f.v,
                 .o = f.o,
                 .d_o = p.normal("d_o", DType::bf16, {T, s.H, s.D}),
                 .lse = f.lse,
                 .delta = p.empty("delta", DType::f32, {s.H, T}),
                 .first = f.first,
                 .blocks = stage->blocks,
                 .dq = p.normal("dq", type, {T, s.H, s.D}),
                 .dk = p.normal("dk", type, {T, s.G, s.D}),
                 .dv = p.normal("dv", type, {T, s.G, s.D}),
                 .scale = f.scale};
  a.workspace = p.scratch(b.ops().attention_bwd_bytes(a));
  b.ops().attention_delta(Lane::compute, {.o = a.o, .d_o = a.d_o, .delta = a.delta});
  return {[&b, stage, a] { b.ops().attention_bwd(Lane::compute, a); }, {a.dq, a.dk, a.dv}};
}

std::string shape_of(const Sizes& s, const Scene& scene) {
  std::string text = std::to_string(scene.tokens) + " x " + std::to_string(s.H) + " x " +
                     std::to_string(s.D) + ", G " + std::to_string(s.G);
  if (scene.document > 0) text += ", documents of " + std::to_string(scene.document);
  if (scene.mixed > 0)
    text += ", documents of " + std::to_string(kShortest) + " to " + std::to_string(scene.mixed);
  if (scene.window > 0) text += ", window " + std::to_string(scene.window);
  if (scene.visit) text += ", f32 sums";
  return text;
}

}  // namespace

std::vector<Case> attention_cases(const Sizes& s) {
  const std::int64_t N = s.N;
  const std::vector<Scene> scenes = {{.name = "full", .tokens = N / 2, .cover = Cover::full, .visit = true},
                                     {.name = "full", .tokens = N, .cover = Cover::full, .visit = true},
                                     {"causal", N, Cover::causal},
                                     {"causal", 2 * N, Cover::causal},
                                     {"packed", N, Cover::partial, N / 16, 0},
                                     {"window", 2 * N, Cover::partial, 0, N / 8}};
  std::vector<Case> all;
  const double width = static_cast<double>(s.H) * static_cast<double>(s.D);
  for (const Scene& scene : scenes) {
    const double pairs = visible_pairs(scene);
    const std::string name = std::string(".") + scene.name + "." + std::to_string(scene.tokens);
    const bool partial = scene.cover == Cover::partial;
    const std::string rate = std::string(".") + (partial ? "partial" : scene.name);
    const auto tokens = static_cast<double>(scene.tokens);
    const double size = partial ? std::round(pairs / tokens) : tokens;
    all.push_back({Kind::attention, "attention_fwd" + name, shape_of(s, scene), 4 * width * pairs,
                   s.attention_seconds, [=](Backend& b, Pool& p) { return forward_work(s, scene, b, p); },
                   "attention_fwd" + rate, size});
    all.push_back({Kind::attention, "attention_bwd" + name, shape_of(s, scene), 10 * width * pairs,
                   s.attention_seconds, [=](Backend& b, Pool& p) { return backward_work(s, scene, b, p); },
                   "attention_bwd" + rate, size});
  }
  return all;
}

std::vector<EngineCase> engine_cases(std::int64_t N) {
  struct Row {
    std::int64_t D;
    bool own;  // our portable engine too, which is slow
    Scene scene;
  };
  const std::vector<Row> rows = {
      {128, true, {.name = "full", .tokens = N / 2, .cover = Cover::full}},
      {128, false, {.name = "full", .tokens = N, .cover = Cover::full}},
      {128, false, {.name = "full", .tokens = 4 * N, .cover = Cover::full}},
      {128, false, {.name = "ring_visit", .tokens = N, .cover = Cover::full, .visit = true}},
      {128, false, {.name = "causal", .tokens = N, .cover = Cover::causal}},
      {128, false, {.name = "causal", .tokens = 2 * N, .cover = Cover::causal}},
      {128, true, {.name = "documents_2048", .tokens = 2 * N, .cover = Cover::partial, .document = 2048}},
      {128, false, {.name = "documents_mixed", .tokens = 2 * N, .cover = Cover::partial, .mixed = 30000}},
      {128, true, {.name = "window_128", .tokens = 2 * N, .cover = Cover::partial, .window = 128}},
      {128, false, {.name = "window_4096", .tokens = 2 * N, .cover = Cover::partial, .window = 4096}},
      {64, false, {.name = "full", .tokens = N, .cover = Cover::full}},
      {64, false, {.name = "causal", .tokens = N, .cover = Cover::causal}},
      {64, true, {.name = "documents_2048", .tokens = 2 * N, .cover = Cover::partial, .document = 2048}}};
  std::vector<EngineCase> all;
  for (const Row& row : rows) {
    Sizes s;
    s.D = row.D;
    const Scene& scene = row.scene;
    const std::string name =
        std::string(scene.name) + "." + std::to_string(scene.tokens) + ".d" + std::to_string(row.D);
    const double pairs = visible_pairs(scene) * static_cast<double>(s.H * s.D);
    const bool whole = scene.tokens == N && std::string(scene.name) == "full";
    all.push_back({"forward", name, row.D, 4 * pairs, row.own, whole,
                   [=](Backend& b, Pool& p) { return forward_work(s, scene, b, p); }});
    all.push_back({"backward", name, row.D, 10 * pairs, row.own, whole,
                   [=](Backend& b, Pool& p) { return backward_work(s, scene, b, p); }});
  }
  return all;
}

}  // namespace annulus::bench
