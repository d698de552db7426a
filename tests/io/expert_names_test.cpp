// Experts' tensors of a folder as stacks, and back.
#include "io/expert_names.h"
#include <algorithm>
#include <map>
#include "io/elements.h"
#include "io/hf_export.h"
#include "io/io_support.h"
#include "io/safetensors.h"
#include "support/data.h"
#include "support/refusal.h"

namespace annulus::test {
namespace {

/// Tensors by name, each element its place in the tensor and a number of the tensor.
class Named : public WeightSource {
 public:
  explicit Named(std::vector<StoredTensor> tensors) : tensors_(std::move(tensors)) {}
  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const std::string& config_json() const override { return config_; }
  bool has(const std::string& name) const override { return find(name) < tensors_.size(); }
  void read(const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) override {
    const std::size_t t = find(name);
    BOOST_REQUIRE(t < tensors_.size());
    BOOST_REQUIRE(from + count <= shape_size(tensors_[t].shape));
    for (std::int64_t i = 0; i < count; ++i) to.as<float>()[i] = at(t, from + i);
  }
  static float at(std::size_t tensor, std::int64_t i) { return static_cast<float>(1000 * tensor + i); }
  std::size_t find(const std::string& name) const {
    std::size_t i = 0;
    while (i < tensors_.size() && tensors_[i].name != name) ++i;
    return i;
  }

 private:
  std::vector<StoredTensor> tensors_;
  std::string config_ = "{}";
};

const std::string kLayer = "model.layers.3.mlp.";

/// Eleven experts, so that names do not sort as numbers.
std::vector<StoredTensor> single_tensors() {
  std::vector<StoredTensor> all = {{kLayer + "gate.weight", {11, 5}, "BF16"},
                                   {"model.norm.weight", {5}, "F32"}};
  for (int e = 0; e < 11; ++e) {
    const std::string name = kLayer + "experts." + std::to_string(e) + ".";
    all.push_back({name + "gate_proj.weight", {3, 5}, "BF16"});
    all.push_back({name + "up_proj.weight", {3, 5}, "BF16"});
    all.push_back({name + "down_proj.weight", {5, 3}, "BF16"});
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

std::vector<float> read(WeightSource& source, const std::string& name, std::int64_t from,
                        std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  source.read(name, from, count, make_tensor("t", values.data(), DType::f32, {count}));
  return values;
}

void refused(std::vector<StoredTensor> tensors, std::vector<std::string> parts) {
  check_refused(Exit::input, parts, [&] { stack_experts(std::make_unique<Named>(std::move(tensors))); });
}

BOOST_AUTO_TEST_SUITE(io)

BOOST_AUTO_TEST_CASE(tensors_of_experts_are_read_as_stacks) {
  const Named named(single_tensors());
  const auto source = stack_experts(std::make_unique<Named>(single_tensors()));
  BOOST_REQUIRE(source->tensors().size() == 4u);
  const StoredTensor &down = source->tensors()[0], &gate_up = source->tensors()[1];
  BOOST_TEST(down.name == kLayer + "experts.down_proj");
  BOOST_TEST(gate_up.name == kLayer + "experts.gate_up_proj");
  BOOST_TEST((down.shape == std::vector<std::int64_t>{11, 5, 3}));
  BOOST_TEST((gate_up.shape == std::vector<std::int64_t>{11, 6, 5}));
  BOOST_TEST(gate_up.dtype == "BF16");
  BOOST_TEST(source->has(gate_up.name));
  BOOST_TEST(!source->has("model.absent"));
  // Element (e, row, c) of a stack, asked for in ranges that begin and end anywhere.
  for (const std::int64_t from : {0, 1, 14, 29, 30, 299})
    for (const std::int64_t count : {0, 1, 16, 31}) {
      const std::vector<float> got = read(*source, gate_up.name, from, count);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t at = from + i, e = at / 30;
        const std::string part = at % 30 < 15 ? ".gate_proj.weight" : ".up_proj.weight";
        const std::size_t t = named.find(kLayer + "experts." + std::to_string(e) + part);
        BOOST_TEST(got[static_cast<std::size_t>(i)] == Named::at(t, at % 15));
      }
    }
  const std::size_t last = named.find(kLayer + "experts.10.down_proj.weight");
  BOOST_TEST(read(*source, down.name, 150, 15).back() == Named::at(last, 14));
  BOOST_TEST(read(*source, "model.norm.weight", 2, 1)[0] == Named::at(named.find("model.norm.weight"), 2));
  BOOST_CHECK_THROW(read(*source, down.name, 150, 16), Error);
}

BOOST_AUTO_TEST_CASE(stacks_that_are_not_whole_are_refused_by_name) {
  const auto without = [](const std::string& name) {
    std::vector<StoredTensor> all = single_tensors();
    std::erase_if(all, [&](const StoredTensor& t) { return t.name == name; });
    return all;
  };
  const auto changed = [](const std::string& name, StoredTensor to) {
    std::vector<StoredTensor> all = single_tensors();
    for (StoredTensor& t : all)
      if (t.name == name) t = to;
    return all;
  };
  const std::string seven = kLayer + "experts.7.up_proj.weight", zero = kLayer + "experts.0.gate_proj.weight";
  refused(without(seven), {seven, "missing"});
  refused(without(zero), {zero, "missing"});
  refused(changed(seven, {seven, {3, 4}, "BF16"}), {seven, "shape or type"});
  refused(changed(seven, {seven, {3, 5}, "F32"}), {seven, "shape or type"});
  refused(changed(zero, {zero, {15}, "BF16"}), {kLayer + "experts.", "not matrices"});
  auto both = single_tensors();
  both.push_back({kLayer + "experts.down_proj", {11, 5, 3}, "BF16"});
  refused(both, {kLayer + "experts.down_proj", "once"});
  // Far apart numbers are not counted up to: the first that is missing is named.
  auto far = single_tensors();
  far.push_back({kLayer + "experts.9000000000000000000.up_proj.weight", {3, 5}, "BF16"});
  refused(far, {"experts.11.gate_proj.weight", "missing"});
}

BOOST_AUTO_TEST_CASE(stacks_are_passed_on_and_split_for_a_folder) {
  const std::vector<StoredTensor> stacks = {{kLayer + "experts.down_proj", {2, 5, 3}, "BF16"},
                                            {kLayer + "experts.gate_up_proj", {2, 6, 5}, "BF16"},
                                            {kLayer + "gate.weight", {2, 5}, "F32"}};
  BOOST_TEST(stack_experts(std::make_unique<Named>(stacks))->tensors().size() == 3u);
  const std::vector<SplitTensor> split = split_experts(stacks);
  BOOST_REQUIRE(split.size() == 7u);
  std::map<std::string, SplitTensor> by_name;
  for (const SplitTensor& t : split) by_name[t.tensor.name] = t;
  const SplitTensor& up = by_name.at(kLayer + "experts.1.up_proj.weight");
  BOOST_TEST((up.tensor.shape == std::vector<std::int64_t>{3, 5}));
  BOOST_TEST(up.at == 45);
  BOOST_TEST(up.from == kLayer + "experts.gate_up_proj");
  BOOST_TEST(by_name.at(kLayer + "experts.1.down_proj.weight").at == 15);
  BOOST_TEST(by_name.at(kLayer + "experts.0.gate_proj.weight").tensor.dtype == "BF16");
  BOOST_TEST(by_name.at(kLayer + "gate.weight").from == kLayer + "gate.weight");
}

/// Folder to .h5 to folder: the names and bytes that transformers wrote.
BOOST_AUTO_TEST_CASE(a_folder_of_experts_comes_back_as_it_was) {
  const auto world = all_ranks();
  const RanksFolder folder(*world);
  const std::string source = test_data("tests/oracle/moe/model"), h5 = folder / "model.h5";
  import_hf(*world, source, h5);
  const auto imported = open_weights(h5);
  BOOST_TEST(imported->has("model.layers.1.mlp.experts.gate_up_proj"));
  BOOST_TEST(!imported->has("model.layers.1.mlp.experts.0.up_proj.weight"));
  std::vector<StoredTensor> tensors;
  std::map<std::string, SplitTensor> places;
  for (const SplitTensor& t : split_experts(imported->tensors())) {
    tensors.push_back(t.tensor);
    places[t.tensor.name] = t;
  }
  export_hf(*world, {folder / "out", source, "", tensors},
            [&](const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) {
              imported->read(places.at(name).from, places.at(name).at + from, count, to);
            });
  const SafeTensorsFile was = open_safetensors(source + "/model.safetensors");
  const SafeTensorsFile now = open_safetensors(folder / "out/model.safetensors");
  BOOST_REQUIRE(now.tensors.size() == was.tensors.size());
  for (const SafeTensor& t : was.tensors) {
    const SafeTensor* again = now.find(t.name);
    BOOST_REQUIRE_MESSAGE(again != nullptr, t.name);
    BOOST_TEST((again->shape == t.shape), t.name);
    std::string a(static_cast<std::size_t>(t.bytes), 0), b = a;
    was.file.read(t.offset, t.bytes, a.data());
    now.file.read(again->offset, t.bytes, b.data());
    BOOST_TEST((a == b), t.name);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace annulus::test
