#include "data/dataset.h"
#include "data/documents.h"

namespace annulus {

void tokenize_files(Comm& world, const std::vector<std::string>& files, const DataSection& data,
                    const ModelConfig& model, const std::string& model_path, const std::string& out) {
  const Documents documents = read_documents(world, files, data, model, model_path);
  write_token_file(world, out, documents.part, documents.source);
}

}  // namespace annulus
