// Which chat format a model folder's template is.
#pragma once
#include <string>
#include <vector>
#include "data/chat/format.h"

namespace annulus {

/// The format of a folder's template (chat_template.jinja, or chat_template in tokenizer_config.json), known
/// by the SHA-256 of its text. Fails (input) when the folder has none, or one that is not known; the sentence
/// shows the Python line that writes rows of tokens with masks instead, for `files`.
const ChatFormat& format_of_folder(const std::string& folder, const std::vector<std::string>& files);

}  // namespace annulus
