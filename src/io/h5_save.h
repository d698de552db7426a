// Writing an Annulus HDF5 file: what checkpoints, imported weights and token files share.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "comm/comm.h"
#include "io/checkpoint.h"
#include "io/h5_file.h"

namespace annulus {

struct H5Spec {
  std::string name;
  std::vector<std::int64_t> shape;
  H5Kind kind = H5Kind::f32;
};

/// Elements [from, from + count) of a dataset: from memory, or made on demand in blocks by `fill`.
struct H5Part {
  std::size_t dataset = 0;  // index in specs
  std::int64_t from = 0, count = 0;
  const void* data = nullptr;
  std::function<void(std::int64_t from, std::int64_t count, void* to)> fill;
};

/// The same on every rank except `parts`; facts are taken from rank 0.
struct H5Job {
  std::string path, kind;
  std::vector<H5Spec> specs;
  std::vector<H5Part> parts;
  std::map<std::string, std::string> facts;
  std::string fail;
};

std::unique_ptr<Save> begin_h5(Comm& world, H5Job);

}  // namespace annulus
