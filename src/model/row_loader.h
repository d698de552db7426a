// From a row on the host to the tensors that the layers read.
#pragma once
#include "model/work.h"

namespace annulus {

/// Holds the pinned buffers that rows pass through; they are made with the first row and keep their sizes.
class RowLoader {
 public:
  RowLoader(Backend&, std::vector<std::int64_t> windows);

  /// Takes the row's tensors from the arena and fills them on the compute lane. The copies of the row before
  /// must have ended. `ordered`: with the order of ids, which the embedding's gradient needs.
  RowInputs load(Arena&, const LocalRow&, const Grid&, bool ordered);
  void give(Arena&, const RowInputs&);
  std::int64_t host_bytes() const { return host_.peak_bytes(); }

 private:
  Tensor buffer(const char* name, DType, std::int64_t n);
  template <class Fill>
  Tensor bring(Arena&, const Tensor& host, Fill);

  Backend& backend_;
  Arena host_;
  std::vector<std::int64_t> windows_;
  Tensor ids_, targets_, order_, positions_;
  std::vector<Tensor> first_;
};

}  // namespace annulus
