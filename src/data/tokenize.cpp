#include "data/dataset.h"
#include "data/documents.h"

namespace annulus {

std::map<std::string, std::string> tokenize_files(Comm& world, const std::vector<std::string>& files,
                                                  const DataSection& data, const ModelConfig& model,
                                                  const std::string& model_path, const std::string& out,
                                                  const Told& told) {
  Documents documents = read_documents(world, files, data, model, model_path, out, told);
  write_token_file(world, out, documents.supply, documents.source);
  return std::move(documents.source);
}

}  // namespace annulus
