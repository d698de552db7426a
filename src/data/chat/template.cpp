#include "data/chat/template.h"
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include "config/json_read.h"
#include "core/check.h"
#include "core/sha256.h"
#include "data/foreign.h"
#include "io/file.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

struct Known {
  const char* digest;  // of the template without a newline at its end
  const char* format;
};
constexpr Known kKnown[] = {
    {"87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5", "qwen3"},  // as first released
    {"a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8", "qwen3"},
    {"64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326", "qwen3-instruct"},  // 2507
    {"55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a", "qwen2.5"},
    {"ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", "llama3"},
    {"93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7", "llama3.1"},
    {"d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f", "llama3.2"},
    {"a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146", "gpt-oss"},
    {"44f815868bf02fa458dd2f741a338046f4bf45f398eb6d067766726b9d96cce3", "glm4.5"},
    {"b1e56a48a6c16b1ccc8c3c8f2e2a28d6627efb93f15fbfe13eb1bbd175a4756b", "glm4.5"},  // 4.6
    {"563b1ce7d61d50a9b4c7439a912a1116f095b712df5b5e4d3e1116049874eb64", "deepseek-r1"},
    {"56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f", "deepseek-r1-distill"},
    {"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3", "chatml"},
    {"fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", "chatml"}};
constexpr std::int64_t kLongest = std::int64_t{16} << 20;  // bytes of a file that is read

/// tokenizer_config.json's: a text, or a list of named ones of which "default" counts.
std::optional<std::string> template_in_config(const std::string& path) {
  const nlohmann::ordered_json config = read_json(read_text(path, kLongest), path);
  if (!config.is_object() || !config.contains("chat_template")) return std::nullopt;
  const nlohmann::ordered_json& found = config["chat_template"];
  if (found.is_string()) return found.get<std::string>();
  if (found.is_array())
    for (const auto& entry : found)
      if (entry.is_object() && entry.value("name", "") == "default" && entry.contains("template") &&
          entry["template"].is_string())
        return entry["template"].get<std::string>();
  return std::nullopt;
}

std::optional<std::string> template_of(const std::string& folder) {
  if (const std::string path = folder + "/chat_template.jinja"; fs::exists(path))
    return read_text(path, kLongest);
  if (const std::string path = folder + "/tokenizer_config.json"; fs::exists(path))
    return template_in_config(path);
  return std::nullopt;
}

/// Writes rows of input_ids and assistant_masks. A template without marks of what the assistant generates
/// takes TRL's training template, where TRL has one.
std::string python_line(bool marked, const std::string& folder, const std::string& file) {
  const std::string script =
      std::string("import json, sys; from transformers import AutoTokenizer; ") +
      (marked ? "" : "from trl.chat_template_utils import get_training_chat_template; ") +
      "t = AutoTokenizer.from_pretrained(sys.argv[1]); " +
      (marked ? "c = None; " : "c = get_training_chat_template(t); ") +
      "e = lambda r: t.apply_chat_template(r[\"messages\"], tools=r.get(\"tools\"), chat_template=c, "
      "return_dict=True, return_assistant_tokens_mask=True); "
      "[print(json.dumps({k: list(v) for k, v in e(json.loads(l)).items() if k != \"attention_mask\"})) for "
      "l in "
      "open(sys.argv[2])]";
  return "python3 -c '" + script + "' " + shell_word(folder) + " " + shell_word(file) + " > tokens.jsonl";
}

}  // namespace

const ChatFormat& format_of_folder(const std::string& folder, const std::vector<std::string>& files) {
  const std::optional<std::string> found = template_of(folder);
  if (!found)
    input_error("the model folder " + folder +
                " has no chat template to write messages with; name the format by data.chat (" +
                chat_format_names() + ")");
  std::string_view text = *found;
  if (text.ends_with('\n')) text.remove_suffix(1);  // as the templates' language does
  const std::string digest = sha256(text);
  for (const Known& k : kKnown)
    if (digest == k.digest) return *find_chat_format(k.format);
  const bool marked = text.find("endgeneration") != std::string_view::npos;
  input_error("the chat template of " + folder + " is not known here (SHA-256 " + digest.substr(0, 12) +
              "...); name a format by data.chat (" + chat_format_names() +
              "), or let Python write rows of tokens and train on tokens.jsonl: " +
              python_line(marked, folder, files.empty() ? "messages.jsonl" : files.front()));
}

}  // namespace annulus
