// Documents of tokens, as they go into a token file.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>
#include "comm/comm.h"
#include "config/model_config.h"
#include "config/run_config.h"
#include "io/token_file.h"

namespace annulus {

/// Bytes read of all that a rank is to read; called often.
using Told = std::function<void(std::int64_t done, std::int64_t all)>;

/// This rank's: the tokens lie in a spool on disk, and of each document is held where it begins, no more.
struct Documents {
  TokenSupply supply;
  std::map<std::string, std::string> source;  // what was read and how: the token file's attributes
};

/// Collective; the work of tokenize_files() but for writing. The spool is made beside the file `beside`.
Documents read_documents(Comm& world, const std::vector<std::string>& files, const DataSection&,
                         const ModelConfig&, const std::string& model_path, const std::string& beside,
                         const Told& = {});

/// What a token file's facts say of its documents, for people: "3 documents, 40 tokens, 12 of them targets;
/// ...".
std::string describe_tokens(const std::map<std::string, std::string>& source);

}  // namespace annulus
