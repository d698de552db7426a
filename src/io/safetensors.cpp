#include "io/safetensors.h"
#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include "core/check.h"

namespace annulus {
namespace {

constexpr std::int64_t kMostHeader = 100'000'000;  // the format's own limit
constexpr std::int64_t kMostIndex = 256'000'000;
constexpr std::size_t kMostDimensions = 8;

using Json = nlohmann::json;

/// Events of a JSON text. Everything is refused unless a reader below expects it, so depth is bounded by what
/// they expect, and a name that comes twice is seen (a parsed tree would silently keep one).
class Events : public nlohmann::json_sax<Json> {
 public:
  explicit Events(std::string where) : where_(std::move(where)) {}
  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_unsigned(number_unsigned_t) override { return unexpected("a number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is no 64-bit integer");
  }
  bool string(string_t&) override { return unexpected("a string"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool start_object(std::size_t) override { return unexpected("an object"); }
  bool start_array(std::size_t) override { return unexpected("a list"); }
  bool end_object() override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t byte, const std::string&, const nlohmann::detail::exception& e) override {
    std::string why = e.what();
    // The library's own prefix "[json.exception...] " says nothing to the user.
    if (const std::size_t end = why.find("] "); end != std::string::npos) why = why.substr(end + 2);
    input_error(where_ + ": " + why + " (byte " + std::to_string(byte) +
                " of the JSON); copy the file again");
  }

 protected:
  bool unexpected(std::string_view what) const {
    input_error(where_ + ": " + std::string(what) + " where it does not belong" +
                (context_.empty() ? "" : ", at '" + shown(context_) + "'") +
                "; copy the file again or convert it anew");
  }
  std::string where_, context_;
};

struct Entry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape, range;
};

/// {"NAME": {"dtype": "F32", "shape": [..], "data_offsets": [b, e]}, ..., "__metadata__": {"k": "v"}}
class HeaderEvents : public Events {
 public:
  using Events::Events;
  std::vector<Entry> entries;

  bool start_object(std::size_t) override {
    if (depth_ == 2 || list_ != nullptr) return unexpected("an object");
    if (++depth_ == 2 && !metadata_) entries.push_back({context_, {}, {}, {}});
    return true;
  }
  bool end_object() override {
    --depth_;
    metadata_ = false;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      context_ = name;
      metadata_ = name == "__metadata__";
      return true;
    }
    field_ = name;
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ != 2 || list_ != nullptr) return unexpected("a string");
    if (metadata_) return true;
    if (field_ != "dtype" || entries.back().dtype) return unexpected("a string as '" + shown(field_) + "'");
    entries.back().dtype = text;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || metadata_ || list_ != nullptr) return unexpected("a list");
    auto& list = field_ == "shape" ? entries.back().shape : entries.back().range;
    if ((field_ != "shape" && field_ != "data_offsets") || list)
      return unexpected("a list as '" + shown(field_) + "'");
    list_ = &list.emplace();
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool number_unsigned(number_unsigned_t n) override {
    if (list_ == nullptr || list_->size() == kMostDimensions) return unexpected("a number");
    list_->push_back(n);
    return true;
  }

 private:
  int depth_ = 0;
  bool metadata_ = false;
  std::string field_;
  std::vector<std::uint64_t>* list_ = nullptr;
};

/// {"metadata": {anything flat}, "weight_map": {"NAME": "FILE", ...}}
class IndexEvents : public Events {
 public:
  using Events::Events;
  std::map<std::string, std::string> files;
  bool found = false;

  bool start_object(std::size_t) override {
    if (depth_ == 2 || list_) return unexpected("an object");
    if (++depth_ == 2 && section_ == "weight_map") {
      if (found) return unexpected("a second weight_map");
      found = true;
    }
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool key(string_t& name) override {
    (depth_ == 1 ? section_ : name_) = name;
    context_ = depth_ == 1 ? section_ : section_ + "." + name;
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ != 2 || section_ != "weight_map" || list_) return aside("a string");
    if (!files.emplace(name_, text).second) return unexpected("a tensor's second file");
    return true;
  }
  bool number_unsigned(number_unsigned_t) override { return aside("a number"); }
  bool number_integer(number_integer_t) override { return aside("a number"); }
  bool number_float(number_float_t, const string_t&) override { return aside("a number"); }
  bool boolean(bool) override { return aside("true or false"); }
  bool null() override { return aside("null"); }
  bool start_array(std::size_t) override {
    if (list_) return unexpected("a list of lists");
    list_ = true;
    return aside("a list");
  }
  bool end_array() override {
    list_ = false;
    return true;
  }

 private:
  /// What stands beside the weight_map is other programs' and does not matter.
  bool aside(std::string_view what) const {
    if (depth_ == 0 || section_ == "weight_map") return unexpected(what);
    return true;
  }
  int depth_ = 0;
  bool list_ = false;
  std::string section_, name_;
};

void parse(const std::string& text, Events& events) {
  // What the text gets wrong is thrown by the events.
  need(Json::sax_parse(text, &events), "a JSON text ended early");
}

/// Bits of an element of every type that the format knows; 0 for unknown names.
int bits_of(const std::string& dtype) {
  static const std::map<std::string, int> bits = {
      {"BOOL", 8},        {"U8", 8},          {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},
      {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},        {"F32", 32},    {"I64", 64},    {"U64", 64},    {"F64", 64},
      {"C64", 64},        {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  const auto found = bits.find(dtype);
  return found == bits.end() ? 0 : found->second;
}

[[noreturn]] void refuse(const std::string& path, const std::string& tensor, const std::string& why) {
  input_error(path + ": tensor '" + shown(tensor) + "' " + why);
}

/// Checks one entry against itself; ranges against each other come later.
SafeTensor checked(const std::string& path, const Entry& e) {
  if (!e.dtype || !e.shape || !e.range || e.range->size() != 2)
    refuse(path, e.name, "lacks dtype, shape or two data_offsets; convert the model anew");
  const int bits = bits_of(*e.dtype);
  if (bits == 0)
    refuse(path, e.name, "has the unknown type '" + shown(*e.dtype) + "'; convert the model to BF16");
  SafeTensor t;
  t.name = e.name;
  for (std::uint64_t d : *e.shape) {
    if (d > static_cast<std::uint64_t>(INT64_MAX)) refuse(path, e.name, "has a shape whose size overflows");
    t.shape.push_back(static_cast<std::int64_t>(d));
  }
  const std::int64_t count = shape_size(t.shape);
  std::int64_t size_bits = 0;
  if (count < 0 || __builtin_mul_overflow(count, bits, &size_bits))
    refuse(path, e.name, "has a shape whose size overflows");
  const std::uint64_t begin = (*e.range)[0], end = (*e.range)[1];
  if (begin > end || end > static_cast<std::uint64_t>(INT64_MAX))
    refuse(path, e.name,
           "ends before it begins: data_offsets " + std::to_string(begin) + ", " + std::to_string(end));
  if (size_bits % 8 != 0 || static_cast<std::uint64_t>(size_bits / 8) != end - begin)
    refuse(path, e.name,
           "has " + std::to_string(end - begin) + " bytes where its shape and type " + *e.dtype + " make " +
               std::to_string(size_bits / 8));
  if (!parse_stored(*e.dtype, &t.type))
    refuse(path, e.name,
           "has type " + *e.dtype + "; weights are read as F32, BF16 or F16: convert the model to BF16");
  t.offset = static_cast<std::int64_t>(begin);
  t.bytes = static_cast<std::int64_t>(end - begin);
  return t;
}

/// No gap, no overlap, and the last byte of data is the last of the file. Offsets become the file's.
void check_ranges(const std::string& path, std::vector<SafeTensor>& tensors, std::int64_t data_at,
                  std::int64_t file_size) {
  std::sort(tensors.begin(), tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  std::int64_t at = 0;
  for (SafeTensor& t : tensors) {
    if (t.offset != at)
      refuse(path, t.name,
             std::string(t.offset < at ? "overlaps another" : "leaves a gap before it") +
                 ": it begins at data byte " + std::to_string(t.offset) + " where " + std::to_string(at) +
                 " was due; copy the file again");
    at += t.bytes;
    if (at > file_size - data_at)
      refuse(path, t.name,
             "ends at file byte " + std::to_string(data_at) + " + " + std::to_string(at) +
                 ", but the file has " + std::to_string(file_size) + ": it is truncated; copy it again");
    t.offset += data_at;
  }
  if (at != file_size - data_at)
    input_error(path + " has " + std::to_string(file_size - data_at - at) +
                " bytes after its last tensor, from byte " + std::to_string(data_at + at) +
                "; copy the file again");
}

}  // namespace

const SafeTensor* SafeTensorsFile::find(const std::string& name) const {
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const SafeTensor& t, const std::string& n) { return t.name < n; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

SafeTensorsFile open_safetensors(const std::string& path) {
  SafeTensorsFile f{File::open_for_reading(path), {}};
  const std::int64_t size = f.file.size();
  if (size < 8)
    input_error(path + " has " + std::to_string(size) +
                " bytes; a safetensors file begins with 8 of header length: "
                "copy it again");
  std::uint64_t length = 0;
  f.file.read(0, 8, &length);
  if (length > static_cast<std::uint64_t>(kMostHeader))
    input_error(path + ": bytes 0 to 7 give a header of " + std::to_string(length) +
                " bytes; the format allows " + std::to_string(kMostHeader) +
                ": this is no safetensors file or a damaged one");
  const auto header = static_cast<std::int64_t>(length);
  if (header > size - 8)
    input_error(path + ": its header of " + std::to_string(header) +
                " bytes passes the end of the file at byte " + std::to_string(size) +
                ": it is truncated; copy it again");
  std::string text(static_cast<std::size_t>(header), '\0');
  f.file.read(8, header, text.data());
  if (text.empty() || text.front() != '{')
    input_error(path + ": byte 8 does not begin a JSON object; this is no safetensors file or a damaged one");
  HeaderEvents events(path + ", header from byte 8");
  parse(text, events);
  for (const Entry& e : events.entries) f.tensors.push_back(checked(path, e));
  check_ranges(path, f.tensors, 8 + header, size);
  std::sort(f.tensors.begin(), f.tensors.end(),
            [](const SafeTensor& a, const SafeTensor& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < f.tensors.size(); ++i)
    if (f.tensors[i].name == f.tensors[i - 1].name)
      refuse(path, f.tensors[i].name, "stands in the header twice; convert the model anew");
  return f;
}

std::vector<std::pair<std::string, std::string>> read_safetensors_index(const std::string& path) {
  const std::string text = read_text(path, kMostIndex);
  IndexEvents events(path);
  parse(text, events);
  if (!events.found || events.files.empty())
    input_error(path + " has no weight_map with entries; copy the file again");
  for (const auto& [name, file] : events.files)
    if (file.find('/') != std::string::npos || file.find('\\') != std::string::npos ||
        file.find("..") != std::string::npos || file.find('\0') != std::string::npos ||
        !file.ends_with(".safetensors"))
      input_error(path + ": tensor '" + shown(name) + "' is said to be in '" + shown(file) +
                  "'; a shard is a plain name NAME.safetensors in the same folder");
  return {events.files.begin(), events.files.end()};
}

std::string make_safetensors_header(std::vector<SafeTensor>& tensors) {
  // Written by hand: in the order of the data, and in linear time for tens of thousands of names.
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::int64_t at = 0;
  for (SafeTensor& t : tensors) {
    text += ',';
    text += Json(t.name).dump() + R"(:{"dtype":")" + name_of(t.type) + R"(","shape":)" +
            Json(t.shape).dump() + R"(,"data_offsets":[)" + std::to_string(at) + "," +
            std::to_string(at + t.bytes) + "]}";
    t.offset = at;
    at += t.bytes;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  for (SafeTensor& t : tensors) t.offset += 8 + static_cast<std::int64_t>(length);
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + text;
}

}  // namespace annulus
