// Import of Hugging Face folders into one HDF5 file, and export back: the same tensors, names, types and
// files.
#include <nlohmann/json.hpp>
#include "core/bf16.h"
#include "io/hf_export.h"
#include "io/io_support.h"
#include "io/safetensors.h"
#include "io/weights.h"

namespace annulus::test {
namespace {

namespace ut = boost::unit_test;

BOOST_AUTO_TEST_SUITE(io)

/// Tensors of every type, sorted by name; of each type one passes a block of 4 MiB. Values are exact in all
/// three.
std::vector<StoredTensor> mixed_tensors() {
  return {{"lm_head.weight", {3, 17}, "F16"},
          {"model.embed_tokens.weight", {2111, 1009}, "BF16"},
          {"model.layers.0.input_layernorm.weight", {13}, "F32"},
          {"model.layers.0.mlp.down_proj.weight", {1, 1}, "BF16"},
          {"model.layers.0.mlp.up_proj.weight", {1201, 1013}, "F32"},
          {"model.nothing", {0, 5}, "F16"},
          {"model.scalar", {}, "F16"},
          {"model.wide", {1511, 1409}, "F16"}};
}

/// Writes them as one safetensors file, by itself and not by the code under test.
void write_source(const std::string& folder) {
  fs::create_directories(folder + "/chat/more");
  std::string header = "{", data;
  std::size_t d = 0;
  for (const StoredTensor& t : mixed_tensors()) {
    const std::size_t begin = data.size();
    for (std::int64_t i = 0; i < shape_size(t.shape); ++i) {
      const float v = value_at(d, i);
      const std::uint16_t two = t.dtype == "BF16" ? narrow(v).bits : float_to_half(v);
      if (t.dtype == "F32")
        data.append(reinterpret_cast<const char*>(&v), 4);
      else
        data.append(reinterpret_cast<const char*>(&two), 2);
    }
    header += (d++ == 0 ? "\"" : ",\"") + t.name + R"(":{"dtype":")" + t.dtype + R"(","shape":)" +
              nlohmann::json(t.shape).dump() + R"(,"data_offsets":[)" + std::to_string(begin) + "," +
              std::to_string(data.size()) + "]}";
  }
  header += "}";
  const std::uint64_t n = header.size();
  spit(folder + "/model.safetensors", std::string(reinterpret_cast<const char*>(&n), 8) + header + data);
  spit(folder + "/config.json", R"({"model_type": "qwen3", "note": "größe"})");
  spit(folder + "/tokenizer.json", std::string(3'000'000, 't'));
  spit(folder + "/generation_config.json", "{}");
  spit(folder + "/chat/more/template.jinja", "{{ x }}");
  spit(folder + "/pytorch_model.bin", "weights in another form");
  spit(folder + "/model.safetensors.index.json", "{}");
  fs::create_symlink("generation_config.json", folder + "/linked.json");
}

std::int64_t wrong_values(WeightSource& source, DType type) {
  std::int64_t wrong = 0;
  std::size_t d = 0;
  for (const StoredTensor& t : mixed_tensors()) {
    const std::int64_t n = shape_size(t.shape);
    std::vector<float> memory(static_cast<std::size_t>(n));
    source.read(t.name, 0, n, make_tensor("t", memory.data(), type, {n}));
    for (std::int64_t i = 0; i < n; ++i) {
      const float got = type == DType::f32 ? memory[static_cast<std::size_t>(i)]
                                           : widen(reinterpret_cast<const bf16*>(memory.data())[i]);
      wrong += got == value_at(d, i) ? 0 : 1;
    }
    ++d;
  }
  return wrong;
}

void check_same_tensors(const WeightSource& source) {
  BOOST_REQUIRE(source.tensors().size() == mixed_tensors().size());
  for (std::size_t i = 0; i < source.tensors().size(); ++i) {
    BOOST_TEST(source.tensors()[i].name == mixed_tensors()[i].name);
    BOOST_TEST((source.tensors()[i].shape == mixed_tensors()[i].shape));
    BOOST_TEST(source.tensors()[i].dtype == mixed_tensors()[i].dtype);
  }
}

void check_import_and_export() {
  const auto world = all_ranks();
  const RanksFolder folder(*world);
  const std::string source = folder / "source", imported = folder / "model.h5", out = folder / "out";
  if (world->rank() == 0) write_source(source);
  world->barrier();
  const auto original = open_weights(source);
  check_same_tensors(*original);
  BOOST_TEST(wrong_values(*original, DType::f32) == 0);
  BOOST_TEST(wrong_values(*original, DType::bf16) == 0);

  import_hf(*world, source, imported);
  open_h5(imported)->verify(*world);
  const auto weights = open_weights(imported);
  check_same_tensors(*weights);
  BOOST_TEST(weights->config_json() == original->config_json());
  BOOST_TEST(wrong_values(*weights, DType::f32) == 0);
  BOOST_TEST(weights->has("model.scalar"));
  BOOST_TEST(!weights->has("model.absent"));
  const auto facts = open_h5(imported)->facts();
  BOOST_TEST(facts.at("source_folder") == source);

  const auto read = [&](const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) {
    weights->read(name, from, count, to);
  };
  export_hf(*world, {out, facts.at("source_folder"), "", weights->tensors()}, read);
  const auto again = open_weights(out);
  check_same_tensors(*again);
  BOOST_TEST(wrong_values(*again, DType::f32) == 0);
  if (world->rank() == 0) {
    for (const char* name : {"config.json", "tokenizer.json", "generation_config.json",
                             "chat/more/template.jinja", "linked.json"})
      BOOST_TEST((slurp(out + "/" + name) == slurp(source + "/" + name)), name);
    for (const char* name : {"pytorch_model.bin", "model.safetensors.index.json"})
      BOOST_TEST(!fs::exists(out + "/" + name), name);
    BOOST_TEST(!fs::is_symlink(out + "/linked.json"));
    BOOST_TEST((slurp(out + "/model.safetensors").substr(8, 35) == R"({"__metadata__":{"format":"pt"},"lm)"));
    BOOST_TEST(slurp(out + "/model.safetensors")[0] % 8 == 0);
  }
  BOOST_TEST(!fs::exists(out + ".partial"));
  world->barrier();

  // In shards, with another configuration, in other types.
  ExportRequest request{folder / "shards/deep/", "", R"({"model_type":"llama"})", weights->tensors(),
                        5'000'000};
  for (StoredTensor& t : request.tensors) t.dtype = "BF16";
  export_hf(*world, request, read);
  const auto shards = open_weights(folder / "shards/deep");
  BOOST_TEST(wrong_values(*shards, DType::f32) == 0);
  BOOST_TEST(shards->tensors()[0].dtype == "BF16");
  BOOST_TEST(shards->config_json() == R"({"model_type":"llama"})");
  const auto index = nlohmann::json::parse(slurp(folder / "shards/deep/model.safetensors.index.json"));
  std::int64_t bytes = 0;
  for (const StoredTensor& t : mixed_tensors()) bytes += 2 * shape_size(t.shape);
  BOOST_TEST(index["metadata"]["total_size"] == bytes);
  BOOST_TEST(index["weight_map"].size() == mixed_tensors().size());
  BOOST_TEST(index["weight_map"]["model.wide"] == "model-00003-of-00003.safetensors");
  world->barrier();
}

BOOST_AUTO_TEST_CASE(folders_go_in_and_come_out) {
  check_import_and_export();
}
BOOST_AUTO_TEST_CASE(folders_go_in_and_come_out_by_3, *ut::label("ranks3")) {
  check_import_and_export();
}

BOOST_AUTO_TEST_CASE(nothing_that_exists_is_written_over) {
  const auto world = all_ranks();
  const RanksFolder folder(*world);
  const std::string source = folder / "source";
  write_source(source);
  const std::string before = slurp(source + "/model.safetensors");
  const auto weights = open_weights(source);
  const auto read = [&](const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) {
    weights->read(name, from, count, to);
  };
  const auto to = [&](const std::string& out) {
    export_hf(*world, {out, source, "", weights->tensors()}, read);
  };
  fs::create_directory(folder / "full");
  spit(folder / "full/mine", "x");
  spit(folder / "file", "x");
  fs::create_directory_symlink(source, folder / "alias");
  fs::create_directory(folder / "empty");
  check_error(Exit::environment, {"write into the folder it comes from"}, [&] { to(source); });
  check_error(Exit::environment, {"write into the folder it comes from"}, [&] { to(source + "/"); });
  check_error(Exit::environment, {"write into the folder it comes from"}, [&] { to(source + "/out"); });
  check_error(Exit::environment, {"write into the folder it comes from"}, [&] { to(folder / "alias"); });
  check_error(Exit::environment, {"exists and is not empty"}, [&] { to(folder / "full"); });
  check_error(Exit::environment, {"exists and is not empty"}, [&] { to(folder / "file"); });
  check_error(Exit::environment, {"file/out"}, [&] { to(folder / "file/out"); });
  BOOST_TEST((slurp(source + "/model.safetensors") == before));
  BOOST_TEST(slurp(folder / "full/mine") == "x");
  // A reader that fails half way leaves no folder behind, and the next export replaces a killed one's.
  int calls = 0;
  const auto breaks = [&](const std::string& name, std::int64_t from, std::int64_t count, const Tensor& t) {
    if (++calls == 3) input_error("the source broke");
    read(name, from, count, t);
  };
  check_error(Exit::input, {"the source broke"}, [&] {
    export_hf(*world, {folder / "out", source, "", weights->tensors()}, breaks);
  });
  BOOST_TEST(!fs::exists(folder / "out"));
  BOOST_TEST(!fs::exists(folder / "out.partial"));
  fs::create_directory(folder / "empty.partial");
  spit(folder / "empty.partial/old", "x");
  to(folder / "empty");
  BOOST_TEST(wrong_values(*open_weights(folder / "empty"), DType::f32) == 0);
  BOOST_TEST(!fs::exists(folder / "empty/old"));
  BOOST_TEST(!fs::exists(folder / "empty.partial"));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_imported) {
  const auto world = all_ranks();
  const RanksFolder folder(*world);
  fs::create_directory(folder / "model");
  spit(folder / "model/config.json", "{}");
  for (const char* name : {"a/b", ".", "..", ""}) {
    std::vector<SafeTensor> one = {{name, {}, Stored::F32, 0, 4}};
    spit(folder / "model/model.safetensors", make_safetensors_header(one) + "1234");
    check_error(Exit::input, {"HDF5 cannot hold"},
                [&] { import_hf(*world, folder / "model", folder / "a.h5"); });
  }
  BOOST_TEST(!fs::exists(folder / "a.h5"));
  // Weights without a configuration, and a configuration without weights.
  save_h5(*world, {folder / "b.h5", {}, {}, {}, ""});
  check_error(Exit::input, {"b.h5", "config_json"}, [&] { open_weights(folder / "b.h5"); });
  save_h5(*world, {folder / "c.h5", {}, {}, {{"config_json", "{}"}}, ""});
  check_error(Exit::input, {"c.h5", "no weights"}, [&] { open_weights(folder / "c.h5"); });
  for (const char* list : {"{", "[1]", "[[[[]]]]", "\"a\""}) {
    save_h5(*world, {folder / "d.h5", {}, {}, {{"config_json", "{}"}, {"f16_tensors", list}}, ""});
    check_error(Exit::input, {"d.h5", "f16_tensors"}, [&] { open_weights(folder / "d.h5"); });
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace annulus::test
