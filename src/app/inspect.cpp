#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include "app/commands.h"
#include "io/adapter.h"
#include "io/checkpoint.h"
#include "io/token_file.h"
#include "io/weights.h"

namespace annulus {
namespace {

constexpr std::size_t kShown = 200;  // characters of a fact

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t d : shape) text += (text.empty() ? "(" : ", ") + std::to_string(d);
  return text.empty() ? "()" : text + ")";
}

std::int64_t size_of(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

void print_facts(const Program& program, const std::map<std::string, std::string>& facts) {
  for (const auto& [name, value] : facts) {
    const bool whole = value.size() <= kShown && value.find('\n') == std::string::npos;
    say(program, name + ": " + (whole ? value : "(" + std::to_string(value.size()) + " characters)"));
  }
}

void print_tokens(const Program& program, const TokenFile& file) {
  const std::vector<std::int64_t>& documents = file.documents();
  std::int64_t longest = 0;
  for (std::size_t d = 1; d < documents.size(); ++d)
    longest = std::max(longest, documents[d] - documents[d - 1]);
  say(program, "token file: " + std::to_string(documents.size() - 1) + " documents, " +
                   std::to_string(documents.back()) + " tokens, longest document " + std::to_string(longest) +
                   ", largest id " + std::to_string(file.largest_id()));
  print_facts(program, file.source());
}

void print_h5(const Program& program, H5Reader& file) {
  std::int64_t elements = 0, bytes = 0;
  for (const DatasetSpec& d : file.datasets()) {
    say(program, d.dataset + " " + name_of(d.dtype) + " " + shape_text(d.shape));
    elements += size_of(d.shape);
    bytes += size_of(d.shape) * bytes_of(d.dtype);
  }
  say(program, std::to_string(file.datasets().size()) + " datasets, " + std::to_string(elements) +
                   " elements, " + std::to_string(bytes) + " bytes");
  print_facts(program, file.facts());
  file.verify(program.world);
  say(program, "all digests are right");
}

void print_folder(const Program& program, const WeightSource& weights) {
  std::int64_t elements = 0;
  for (const StoredTensor& t : weights.tensors()) {
    say(program, t.name + " " + t.dtype + " " + shape_text(t.shape));
    elements += size_of(t.shape);
  }
  say(program,
      std::to_string(weights.tensors().size()) + " tensors, " + std::to_string(elements) + " elements");
}

}  // namespace

Exit run_inspect(Program& program) {
  expect_arguments(program, 1, "annulus inspect FILE|HF_FOLDER");
  const std::string& path = program.arguments[0];
  if (!std::filesystem::exists(path))
    input_error(path + ": there is no such file; give a .h5 file or a folder");
  if (std::filesystem::is_directory(path)) {
    print_folder(program, is_adapter_folder(path) ? *open_adapter(path) : *open_weights(path));
    return Exit::ok;
  }
  std::string why;  // what is wrong with it as a file of weights
  try {
    print_h5(program, *open_h5(path));
    return Exit::ok;
  } catch (const Error& e) {
    if (e.code != Exit::input) throw;
    why = e.what();
  }
  std::unique_ptr<TokenFile> tokens;
  try {
    tokens = open_token_file(path);
  } catch (const Error&) {
    input_error(why);
  }
  print_tokens(program, *tokens);
  return Exit::ok;
}

}  // namespace annulus
