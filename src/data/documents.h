// Documents of tokens, as they go into a token file.
#pragma once
#include <map>
#include <string>
#include <vector>
#include "comm/comm.h"
#include "config/model_config.h"
#include "config/run_config.h"
#include "io/token_file.h"

namespace annulus {

struct Documents {
  TokenPart part;                             // this rank's
  std::map<std::string, std::string> source;  // what was read and how: the token file's attributes
};

/// Collective; the work of tokenize_files() but for writing.
Documents read_documents(Comm& world, const std::vector<std::string>& files, const DataSection&,
                         const ModelConfig&, const std::string& model_path);

}  // namespace annulus
