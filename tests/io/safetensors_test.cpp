// safetensors files and folders: what is read, and every way in which they can be wrong.
#include "io/safetensors.h"
#include <bit>
#include <cmath>
#include <limits>
#include "core/bf16.h"
#include "io/io_support.h"
#include "io/weights.h"

namespace annulus::test {
namespace {

BOOST_AUTO_TEST_SUITE(io)

std::string with_length(const std::string& header) {
  const std::uint64_t n = header.size();
  return std::string(reinterpret_cast<const char*>(&n), 8) + header;
}

std::string file_of(const std::string& header, std::size_t data) {
  return with_length(header) + std::string(data, '\1');
}

BOOST_AUTO_TEST_CASE(malformed_safetensors_are_refused) {
  const auto world = no_mpi();
  const RanksFolder folder(*world);
  const std::string path = folder / "bad.safetensors";
  const auto refused = [&](const std::string& bytes, std::initializer_list<std::string_view> words) {
    spit(path, bytes);
    check_error(Exit::input, {"bad.safetensors"}, [&] { open_safetensors(path); });
    check_error(Exit::input, words, [&] { open_safetensors(path); });
  };
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  // Lengths.
  refused("", {"0 bytes"});
  refused("1234567", {"7 bytes"});
  refused(with_length("{" + a + "}") + "1234567", {"tensor 'a'", "truncated"});
  refused(file_of("{" + a + "}", 9), {"1 bytes after its last tensor"});
  refused(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}"), {"18446744073709551615 bytes", "100000000"});
  refused(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10), {"100000001"});
  refused(std::string("\x40\0\0\0\0\0\0\0{}", 10), {"header of 64 bytes", "byte 10"});
  refused(with_length(""), {"byte 8"});
  refused(with_length(" {}"), {"byte 8"});
  // JSON.
  refused(with_length("[]"), {"byte 8"});
  refused(with_length("{"), {"byte 2 of the JSON"});
  refused(with_length("{} x"), {"byte 4 of the JSON"});
  refused(with_length("{\"a\xff\":1}"), {"byte 4 of the JSON"});
  refused(with_length("{" + std::string(100'000, '[')), {"the JSON"});
  refused(with_length("{\"a\":" + std::string(100'000, '[')), {"a list", "'a'"});
  refused(with_length(R"({"a":{"b":{"c":1}}})"), {"an object", "'a'"});
  refused(with_length(R"({"a":null})"), {"null"});
  refused(with_length(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})"), {"negative"});
  refused(with_length(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,8]}})"), {"64-bit"});
  refused(with_length(R"({"a":{"dtype":"F32","shape":[1e999999],"data_offsets":[0,8]}})"),
          {"number overflow"});
  refused(with_length(R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}})"),
          {"64-bit"});
  refused(with_length(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,8]}})"), {"a number"});
  refused(with_length(R"({"a":{"dtype":"F32","shape":"x","data_offsets":[0,8]}})"), {"as 'shape'"});
  refused(with_length(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
          {"as 'dtype'"});
  refused(with_length(R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})"), {"a list"});
  refused(with_length(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})"),
          {"a number"});
  refused(with_length(R"({"__metadata__":{"k":1}})"), {"a number", "__metadata__"});
  // Entries.
  refused(file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), {"tensor 'a'", "lacks"});
  refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), {"lacks"});
  refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
          {"ends before it begins: data_offsets 8, 0"});
  refused(file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
          {"has 8 bytes", "make 12"});
  refused(file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
          {"overflows"});
  refused(file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0),
          {"overflows"});
  refused(file_of(R"({"a":{"dtype":"F32","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0),
          {"overflows"});
  refused(file_of(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", 8),
          {"overflows"});
  refused(file_of(R"({"a":{"dtype":"Q4_K","shape":[2],"data_offsets":[0,8]}})", 8), {"unknown type 'Q4_K'"});
  for (const char* type : {"F64", "I64", "U64", "C64"})
    refused(file_of(std::string(R"({"a":{"dtype":")") + type + R"(","shape":[1],"data_offsets":[0,8]}})", 8),
            {"tensor 'a' has type", type, "BF16"});
  for (const char* type : {"F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"})
    refused(file_of(std::string(R"({"a":{"dtype":")") + type + R"(","shape":[8],"data_offsets":[0,8]}})", 8),
            {"tensor 'a' has type", type});
  refused(file_of(R"({"a":{"dtype":"F4","shape":[0,4],"data_offsets":[0,0]}})", 0), {"has type F4"});
  refused(file_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1), {"has 1 bytes"});
  // Between entries.
  refused(file_of("{" + a + "," + a + "}", 8), {"tensor 'a'"});
  refused(file_of("{" + a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12),
          {"tensor 'b' overlaps another", "data byte 4 where 8"});
  refused(file_of("{" + a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})", 20),
          {"tensor 'b' leaves a gap", "data byte 12 where 8"});
  refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})", 16), {"leaves a gap"});
  refused(
      file_of(
          R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
          0),
      {"tensor 'a' stands in the header twice"});
}

BOOST_AUTO_TEST_CASE(legal_safetensors_of_unusual_form_are_read) {
  const auto world = no_mpi();
  const RanksFolder folder(*world);
  const std::string path = folder / "good.safetensors";
  // No tensors; a scalar, an empty one, entries out of order, metadata, padding.
  spit(path, with_length("{}"));
  BOOST_TEST(open_safetensors(path).tensors.empty());
  spit(
      path,
      file_of(
          R"({"z":{"shape":[],"dtype":"BF16","data_offsets":[8,10]},"__metadata__":{"format":"pt","a":"b"},)"
          R"("e":{"dtype":"F16","shape":[0,4],"data_offsets":[8,8]},"a\u00e9":{"data_offsets":[0,8],"dtype":"F32","shape":[2,1]}}    )",
          10));
  const SafeTensorsFile f = open_safetensors(path);
  BOOST_REQUIRE(f.tensors.size() == 3u);
  BOOST_TEST(f.tensors[0].name == "aé");
  BOOST_TEST((f.tensors[0].shape == std::vector<std::int64_t>{2, 1}));
  BOOST_TEST(f.find("z")->bytes == 2);
  BOOST_TEST(f.find("z")->offset == f.file.size() - 2);
  BOOST_TEST(f.find("z")->shape.empty());
  BOOST_TEST(f.find("e")->bytes == 0);
  BOOST_TEST((f.find("y") == nullptr));
}

BOOST_AUTO_TEST_CASE(half_precision_converts_exactly) {
  std::int64_t wrong = 0, not_back = 0;
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const auto bits = static_cast<std::uint16_t>(h);
    const int exponent = static_cast<int>((h >> 10) & 31), fraction = static_cast<int>(h & 1023);
    const float got = half_to_float(bits);
    if (exponent == 31) {
      wrong += fraction == 0 ? !std::isinf(got) : !std::isnan(got);
    } else {
      const double size =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      wrong += std::abs(static_cast<double>(got)) == size ? 0 : 1;
    }
    wrong += std::signbit(got) == ((h >> 15) != 0) ? 0 : 1;
    if (!std::isnan(got)) not_back += float_to_half(got) == bits ? 0 : 1;
  }
  BOOST_TEST(wrong == 0);
  BOOST_TEST(not_back == 0);
  BOOST_TEST(std::isnan(half_to_float(float_to_half(std::numeric_limits<float>::quiet_NaN()))));
}

BOOST_AUTO_TEST_CASE(half_precision_rounds_to_nearest_even) {
  // Between every two neighbouring finite halves: the middle goes to the even one, its neighbours in f32 to
  // the nearer one.
  std::int64_t wrong = 0;
  for (std::uint16_t h = 0; h < 0x7C00; ++h) {
    const auto up = static_cast<std::uint16_t>(h + 1);
    const double low = half_to_float(h), high = h == 0x7BFF ? 65536.0 : half_to_float(up);
    const auto middle = static_cast<float>((low + high) / 2);  // exact: f32 has 13 bits more
    wrong += float_to_half(middle) == ((h & 1) != 0 ? up : h) ? 0 : 1;
    wrong += float_to_half(std::nextafterf(middle, 0)) == h ? 0 : 1;
    wrong += float_to_half(std::nextafterf(middle, 1e9f)) == up ? 0 : 1;
    wrong += float_to_half(-middle) == (0x8000 | ((h & 1) != 0 ? up : h)) ? 0 : 1;
  }
  BOOST_TEST(wrong == 0);
  BOOST_TEST(float_to_half(1e30f) == 0x7C00);
  BOOST_TEST(float_to_half(1e-30f) == 0);
}

/// A folder with config.json and the given files.
void make_folder(const std::string& path, const std::vector<std::pair<std::string, std::string>>& files) {
  fs::remove_all(path);
  fs::create_directory(path);
  spit(path + "/config.json", R"({"model_type":"qwen3"})");
  for (const auto& [name, bytes] : files) spit(path + "/" + name, bytes);
}

std::string f32_file(const std::string& name, const std::vector<float>& v) {
  std::vector<SafeTensor> t = {
      {name, {static_cast<std::int64_t>(v.size())}, Stored::F32, 0, static_cast<std::int64_t>(v.size() * 4)}};
  return make_safetensors_header(t) + std::string(reinterpret_cast<const char*>(v.data()), v.size() * 4);
}

constexpr const char* kIndex = "model.safetensors.index.json";

BOOST_AUTO_TEST_CASE(broken_folders_are_refused) {
  const auto world = no_mpi();
  const RanksFolder folder(*world);
  const std::string path = folder / "model";
  const auto refused = [&](std::initializer_list<std::string_view> words,
                           const std::vector<std::pair<std::string, std::string>>& files) {
    make_folder(path, files);
    check_error(Exit::input, words, [&] { open_weights(path); });
  };
  const std::string shard = f32_file("a", {1, 2, 3});
  refused({"neither model.safetensors nor"}, {{"pytorch_model.bin", "x"}});
  refused({kIndex, "names shard two.safetensors for tensor 'b'"},
          {{"one.safetensors", shard},
           {kIndex, R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"}});
  refused({kIndex, "tensor 'b' is in one.safetensors, which does not hold it"},
          {{"one.safetensors", shard},
           {kIndex, R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})"}});
  for (const char* name : {"../one.safetensors", "/etc/one.safetensors", "sub/one.safetensors", "..", "",
                           "one.bin", "..safetensors\\u0000.safetensors"})
    refused({kIndex, "'a'", "plain name"},
            {{"one.safetensors", shard}, {kIndex, R"({"weight_map":{"a":")" + std::string(name) + "\"}}"}});
  refused({kIndex, "no weight_map"}, {{kIndex, "{}"}});
  refused({kIndex, "no weight_map"}, {{kIndex, R"({"weight_map":{}})"}});
  refused({kIndex, "second file"},
          {{"one.safetensors", shard},
           {kIndex, R"({"weight_map":{"a":"one.safetensors","a":"one.safetensors"}})"}});
  refused({kIndex, "second weight_map"}, {{kIndex, R"({"weight_map":{"a":"b"},"weight_map":{"a":"b"}})"}});
  refused({kIndex, "a number"}, {{kIndex, R"({"weight_map":{"a":1}})"}});
  refused({kIndex, "a list"}, {{kIndex, R"({"weight_map":["a"]})"}});
  refused({kIndex, "byte"}, {{kIndex, R"({"weight_map":{"a":"one.safetensors")"}});
  refused({kIndex, "an object"}, {{kIndex, R"({"metadata":{"x":{"y":{}}}})"}});
  refused({"one.safetensors", "truncated"}, {{"one.safetensors", shard.substr(0, shard.size() - 1)},
                                             {kIndex, R"({"weight_map":{"a":"one.safetensors"}})"}});
  make_folder(path, {{"model.safetensors", shard}});
  fs::remove(path + "/config.json");
  check_error(Exit::input, {"config.json"}, [&] { open_weights(path); });
  check_error(Exit::input, {"there is no model", "absent"}, [&] { open_weights(folder / "absent"); });
}

BOOST_AUTO_TEST_CASE(folders_of_shards_are_read_by_ranges) {
  const auto world = no_mpi();
  const RanksFolder folder(*world);
  const std::string path = folder / "model";
  make_folder(
      path,
      {{"one.safetensors", f32_file("b", {1, 2, 3, 4, 5})},
       {"two.safetensors", f32_file("a", {6, 7})},
       {"extra.safetensors", "not in the index, so not looked at"},
       {kIndex,
        R"({"metadata":{"total_size":28,"list":[1]},"weight_map":{"b":"one.safetensors","a":"two.safetensors"}})"}});
  const auto source = open_weights(path);
  BOOST_TEST(source->config_json() == R"({"model_type":"qwen3"})");
  BOOST_REQUIRE(source->tensors().size() == 2u);
  BOOST_TEST(source->tensors()[0].name == "a");
  BOOST_TEST(source->tensors()[1].dtype == "F32");
  float v[3] = {0, 0, -1};
  source->read("b", 2, 2, make_tensor("v", v, DType::f32, {2}));
  BOOST_TEST(v[0] == 3.f);
  BOOST_TEST(v[1] == 4.f);
  BOOST_TEST(v[2] == -1.f);
  check_error(Exit::bug, {"beyond the end"},
              [&] { source->read("a", 1, 2, make_tensor("v", v, DType::f32, {2})); });
  check_error(Exit::input, {"no tensor 'c'"},
              [&] { source->read("c", 0, 1, make_tensor("v", v, DType::f32, {1})); });
  // Both a whole file and an index: the whole file, as transformers has it.
  spit(path + "/model.safetensors", f32_file("w", {9}));
  BOOST_TEST(open_weights(path)->tensors()[0].name == "w");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace annulus::test
