// First steps of tiny models against what transformers computed (README.md here), over every layout.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include "data/dataset.h"
#include "io/adapter.h"
#include "io/expert_adapters.h"
#include "io/safetensors.h"
#include "io/weights.h"
#include "model/rig.h"
#include "support/backends.h"
#include "support/data.h"
#include "support/world.h"
#include "train/trained.h"

using namespace annulus;
using namespace annulus::test;

namespace {

struct Case {
  std::string folder, name;
  RunConfig run;
  ModelConfig model;
  LoraConfig lora;
  double loss = 0, grad_norm = 0;
  double aux_loss = 0;  // of models with experts
  std::int64_t targets = 0;
  Gradients gradients;
};

/// Of adapters of experts as stacks, as the source has them.
Gradients read_gradients(const std::string& path, const WeightSource* adapters = nullptr) {
  std::map<std::string, Shape> shapes;
  if (adapters != nullptr)
    for (const StoredTensor& t : adapters->tensors()) shapes[t.name] = t.shape;
  const SafeTensorsFile file = open_safetensors(path);
  Gradients all;
  for (const SafeTensor& t : file.tensors) {
    std::vector<float>& g = all[t.name];
    g.resize(static_cast<std::size_t>(shape_size(t.shape)));
    const auto n = static_cast<std::int64_t>(g.size());
    const ReadElements read = [&](std::int64_t from, std::int64_t count, const Tensor& to) {
      read_elements(file.file, t.offset + from * bytes_of(t.type), t.type, count, to);
    };
    const Tensor to = make_tensor("gradient", g.data(), DType::f32, {n});
    if (is_expert_adapter(t.name) && t.name.ends_with("lora_B.weight"))
      stack_from_matrix(shapes.at(t.name), read, 0, n, to);
    else
      read(0, n, to);
  }
  return all;
}

Case read_case(const std::string& name) {
  Case c;
  c.name = name;
  c.folder = test_data("tests/oracle/" + name);
  const std::string base = base_of(name);
  c.run = parse_run_config(
      {c.folder + "/run.ini", "--model.path", base + "/model", "--data.train", base + "/data.jsonl"});
  c.model = parse_model_config(open_weights(c.run.model.path)->config_json(), c.run.model.path);
  std::ifstream in(c.folder + "/expected.json");
  const nlohmann::json expected = nlohmann::json::parse(in);
  c.loss = expected.at("loss");
  c.grad_norm = expected.at("grad_norm");
  c.targets = expected.at("targets");
  c.aux_loss = expected.value("aux_loss", 0.0);
  std::unique_ptr<WeightSource> adapters;
  if (const std::string path = c.folder + "/adapter"; is_adapter_folder(path)) {
    adapters = open_adapter(path);
    c.lora = adapter_of(adapters->config_json(), adapters->tensors(), path);
  }
  c.gradients = read_gradients(c.folder + "/grads.safetensors", adapters.get());
  return c;
}

/// The sums of squares of all leaves.
double norm(const Gradients& g) {
  double sum = 0;
  for (const auto& [name, values] : g)
    for (float x : values) sum += double(x) * x;
  return std::sqrt(sum);
}

/// How ranks share a step, and what they trade time for memory with.
struct Shares {
  int context = 1, ulysses = 1, expert = 1;
  ModelOptions levers = {.mlp_tile = 50, .loss_tile = 33, .expert_tile = 17, .offload_layers = 1};
};

std::string name_of(const Case& c, const Shares& s) {
  const ModelOptions& o = s.levers;
  return c.name + ", context " + std::to_string(s.context) + ", ulysses " + std::to_string(s.ulysses) +
         ", expert " + std::to_string(s.expert) + ", offload " + std::to_string(o.offload_layers) +
         ", tiles " + std::to_string(o.mlp_tile) + (o.recompute ? ", recompute" : "") +
         (o.keep_attention ? ", keep attention" : "") + (o.lean_backward ? ", lean" : "");
}

struct FirstStep {
  double loss = 0, aux_loss = 0;
  std::int64_t targets = 0;
  Gradients gradients;
};

FirstStep first_step(Backend& backend, Comm& world, const Case& c, Dataset& data, const Shares& shares,
                     DType compute) {
  RigOptions options{.config = c.model};
  options.context = shares.context;
  options.ulysses = shares.ulysses;
  options.expert = shares.expert;
  options.model = shares.levers;
  options.model.compute = compute;
  options.per_member = c.run.data.packing == "bfd" ? 4 : 1;
  options.model.sequence = c.run.data.sequence;
  const auto source = open_weights(c.run.model.path);
  std::unique_ptr<WeightSource> adapters;
  if (c.lora.rank > 0) adapters = open_adapter(c.folder + "/adapter");
  options.model.lora = c.lora;
  options.weights = [&](const Parameter& p, std::int64_t from, const Tensor& to) {
    (source->has(p.name) ? source : adapters)->read(p.name, from, to.size(), to);
  };
  Rig rig(backend, world.split(0), options);

  const Grid& grid = rig.grid();
  const std::int64_t rows = std::max<std::int64_t>(c.run.train.rows, 1);
  const std::vector<std::int64_t> windows = c.model.distinct_windows();
  FirstStep step;
  double nll = 0, aux = 0;
  std::int64_t tokens = 0;
  for (std::int64_t row = 0; row < rows; ++row) tokens += data.row_tokens(row);
  const double coefficient = c.run.moe.aux_coefficient;
  for (std::int64_t first = 0; first < rows; first += grid.data) {
    const std::int64_t row = first + grid.data_index;
    const LocalRow local = data.local_row(row < rows ? row : -1, grid, options.per_member, windows);
    step.targets += world.sum(local.target_count());
    const RowTotals totals =
        rig.train(local, 1.0 / static_cast<double>(c.targets), coefficient / static_cast<double>(tokens));
    nll += world.sum(totals.nll) / shares.context;
    aux += world.sum(totals.router.aux * static_cast<double>(local.map.shape().used)) / shares.context;
  }
  step.gradients = rig.gradients();
  step.aux_loss = aux / static_cast<double>(tokens);
  step.loss = nll / static_cast<double>(step.targets) + (c.model.E > 0 ? coefficient * step.aux_loss : 0.0);
  return step;
}

void check_first_step(Backend& backend, Comm& world, const Case& c, Dataset& data, const Shares& shares) {
  const auto [loss, aux, targets, gradients] = first_step(backend, world, c, data, shares, DType::f32);
  BOOST_TEST_INFO(name_of(c, shares) << " of " << world.size() << " ranks");
  BOOST_TEST(std::abs(aux - c.aux_loss) <= 1e-5 * c.aux_loss, c.name << ": auxiliary loss " << aux);
  BOOST_TEST(targets == c.targets);
  BOOST_TEST(std::abs(loss - c.loss) <= 1e-5 * c.loss, c.name << ": loss " << loss << ", not " << c.loss);
  BOOST_TEST(std::abs(norm(gradients) - c.grad_norm) <= 1e-5 * c.grad_norm, c.name << ": gradient norm");
  const double worst = worst_leaf(gradients, c.gradients);
  BOOST_TEST(worst <= 1e-4, c.name << ": worst leaf " << worst);
  BOOST_TEST_MESSAGE(name_of(c, shares) << " of " << world.size() << ": loss " << std::abs(loss / c.loss - 1)
                                        << " worst leaf " << worst);
}

/// The Euclidean distance of two leaves.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
  return std::sqrt(sum);
}

/// In bf16 a leaf may err 1.5 times as much as transformers' own bf16 does, both against f32.
void check_bf16(Backend& backend, Comm& world, const Case& c, Dataset& data, const Shares& shares) {
  const Gradients theirs = read_gradients(c.folder + "/grads_bf16.safetensors");
  const FirstStep step = first_step(backend, world, c, data, shares, DType::bf16);
  BOOST_TEST(std::abs(step.loss - c.loss) <= 5e-3 * c.loss, c.name << ": loss " << step.loss);
  double worst = 0;
  for (const auto& [name, exact] : c.gradients) {
    const double mine = distance(step.gradients.at(name), exact), allowed = distance(theirs.at(name), exact);
    BOOST_TEST(mine <= 1.5 * allowed,
               name_of(c, shares) << " " << name << ": error " << mine << ", transformers' own " << allowed);
    worst = std::max(worst, mine / allowed);
  }
  BOOST_TEST_MESSAGE(name_of(c, shares)
                     << " in bf16: worst leaf errs " << worst << " times as much as transformers' own");
}

using Check = void(Backend&, Comm&, const Case&, Dataset&, const Shares&);

/// Under every combination of the levers that trade time for memory, on as large a ring as there are ranks
/// that share heads.
void check_levers(Backend& backend, Comm& world, const Case& c, Dataset& data, const Shares& at) {
  Shares cut = at;
  if (cut.context != world.size() || cut.ulysses * cut.ulysses != cut.context || cut.expert != cut.ulysses)
    return;
  for (const std::int64_t layers : {std::int64_t{0}, c.model.L})
    for (const std::int64_t tile : {0, 29})
      for (const bool recompute : {true, false})
        for (const bool keep : {true, false})
          for (const bool lean : {true, false}) {
            if (!recompute && !keep) continue;
            cut.levers = {.keep_attention = keep,
                          .recompute = recompute,
                          .mlp_tile = tile,
                          .loss_tile = tile,
                          .expert_tile = tile,
                          .offload_layers = layers,
                          .lean_backward = lean};
            check_first_step(backend, world, c, data, cut);
          }
}

const std::vector<const char*> kDense{"qwen3",  "qwen3_tied_yarn", "llama3",   "packed",    "llama_tied",
                                      "window", "lora_qv",         "lora_all", "lora_bias", "lora_packed"};
const std::vector<const char*> kExperts{"moe",     "moe_mixed",   "moe_packed",
                                        "moe_all", "moe_starved", "moe_crowded"};
const std::vector<const char*> kAdapted{"lora_moe_attention", "lora_moe",         "lora_moe_mixed",
                                        "lora_moe_packed",    "lora_moe_starved", "lora_moe_joined"};

void check_all(const std::vector<const char*>& cases, Check* check) {
  Backend* const backend = &tested();
  const auto world = session().world(backend->queue());
  const SharedFolder folder(*world);
  for (const char* name : cases) {
    const Case c = read_case(name);
    const std::string tokens = folder.path(c.name + ".h5");
    tokenize_files(*world, c.run.data.train, c.run.data, c.model, c.run.model.path, tokens);
    Dataset data(*world, tokens, c.run.data, c.model.V);
    for (int context = 1; context <= world->size(); ++context)
      for (int ulysses = 1; ulysses <= context; ++ulysses)
        for (int expert = 1; expert <= (c.model.E > 0 ? world->size() : 1); ++expert)
          if (world->size() % context == 0 && context % ulysses == 0 && c.model.H % ulysses == 0 &&
              world->size() % expert == 0)
            check(*backend, *world, c, data, {context, ulysses, expert});
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(oracle)

BOOST_AUTO_TEST_CASE(first_steps_are_those_of_transformers, *boost::unit_test::label("ranks1")) {
  check_all(kDense, check_first_step);
}
BOOST_AUTO_TEST_CASE(first_steps_under_every_lever,
                     *boost::unit_test::label("ranks1") * boost::unit_test::label("slow")) {
  check_all({"packed", "window", "moe_packed", "lora_moe"}, check_levers);
}
BOOST_AUTO_TEST_CASE(first_steps_under_every_lever_4,
                     *boost::unit_test::label("ranks4") * boost::unit_test::label("slow")) {
  check_all({"packed", "window", "moe_packed", "lora_moe"}, check_levers);
}
BOOST_AUTO_TEST_CASE(bf16_errs_no_more_than_transformers_own, *boost::unit_test::label("ranks1")) {
  check_all(kDense, check_bf16);
}
BOOST_AUTO_TEST_CASE(bf16_errs_no_more_than_transformers_own_4, *boost::unit_test::label("ranks4")) {
  check_all(kDense, check_bf16);
}
BOOST_AUTO_TEST_CASE(first_steps_are_those_of_transformers_2, *boost::unit_test::label("ranks2")) {
  check_all(kDense, check_first_step);
}
BOOST_AUTO_TEST_CASE(first_steps_are_those_of_transformers_3, *boost::unit_test::label("ranks3")) {
  check_all(kDense, check_first_step);
}
BOOST_AUTO_TEST_CASE(first_steps_are_those_of_transformers_4, *boost::unit_test::label("ranks4")) {
  check_all(kDense, check_first_step);
}

BOOST_AUTO_TEST_CASE(first_steps_with_experts_are_those_of_transformers, *boost::unit_test::label("ranks1")) {
  check_all(kExperts, check_first_step);
}
BOOST_AUTO_TEST_CASE(first_steps_with_experts_are_those_of_transformers_2,
                     *boost::unit_test::label("ranks2")) {
  check_all(kExperts, check_first_step);
}
BOOST_AUTO_TEST_CASE(first_steps_with_experts_are_those_of_transformers_4,
                     *boost::unit_test::label("ranks4")) {
  check_all(kExperts, check_first_step);
}

BOOST_AUTO_TEST_CASE(first_steps_with_adapters_beside_and_on_experts_are_those_of_peft,
                     *boost::unit_test::label("ranks1")) {
  check_all(kAdapted, check_first_step);
}
BOOST_AUTO_TEST_CASE(first_steps_with_adapters_beside_and_on_experts_are_those_of_peft_2,
                     *boost::unit_test::label("ranks2")) {
  check_all(kAdapted, check_first_step);
}
BOOST_AUTO_TEST_CASE(first_steps_with_adapters_beside_and_on_experts_are_those_of_peft_4,
                     *boost::unit_test::label("ranks4")) {
  check_all(kAdapted, check_first_step);
}

BOOST_AUTO_TEST_SUITE_END()
