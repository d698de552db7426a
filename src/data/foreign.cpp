#include "data/foreign.h"
#include <algorithm>
#include <filesystem>
#include "core/check.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

bool plain_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == '/' || c == '+' || c == ',' || c == ':' || c == '=' || c == '@' || c == '%';
}

/// The line that runs `script` with arguments, which it finds in sys.argv.
std::string python(const std::string& script, const std::string& arguments) {
  return "python3 -c 'import sys; " + script + "' " + arguments;
}

std::string without_ending(const std::string& path) {
  return (fs::path(path).parent_path() / fs::path(path).stem()).string();
}

/// "owner/name", as the hub names data sets.
bool may_be_on_the_hub(const std::string& path) {
  const std::size_t slash = path.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == path.size() ||
      path.find('/', slash + 1) != std::string::npos)
    return false;
  const auto fits = [](char c) { return plain_character(c) && c != ':' && c != '=' && c != '%' && c != ','; };
  const std::string ending = fs::path(path).extension().string();
  for (const char* of_a_file : {".jsonl", ".json", ".txt", ".gz", ".zst", ".h5", ".md", ".csv"})
    if (ending == of_a_file) return false;
  return path[0] != '.' && path[0] != '~' && std::all_of(path.begin(), path.end(), fits);
}

}  // namespace

std::string shell_word(const std::string& text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain_character)) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

void refuse_foreign(const std::string& path) {
  const std::string ending = fs::path(path).extension().string();
  for (const char* kind : {"parquet", "arrow"})
    if (ending == std::string(".") + kind)
      input_error("the data file " + path + " is in the " + kind +
                  " format, which is not read here; convert it: " +
                  python("from datasets import load_dataset; load_dataset(\"" + std::string(kind) +
                             "\", data_files=sys.argv[1], split=\"train\").to_json(sys.argv[2])",
                         shell_word(path) + " " + shell_word(without_ending(path) + ".jsonl")));
  std::error_code ignored;
  if (fs::is_directory(path, ignored) && fs::exists(path + "/dataset_info.json", ignored))
    input_error(
        path + " is a folder of the datasets library, which is not read here; convert it: " +
        python("from datasets import load_from_disk; load_from_disk(sys.argv[1]).to_json(sys.argv[2])",
               shell_word(path) + " " + shell_word(path + ".jsonl")));
  if (!fs::exists(path, ignored) && may_be_on_the_hub(path))
    input_error("the data file " + path + " does not exist; if it is a data set of the hub, convert it: " +
                python("from datasets import load_dataset; load_dataset(sys.argv[1], "
                       "split=\"train\").to_json(sys.argv[2])",
                       shell_word(path) + " " + shell_word(fs::path(path).filename().string() + ".jsonl")));
}

}  // namespace annulus
