// Embedding in plain loops: copy rows out, add gradient rows in.
#include <cstring>
#include <vector>
#include "ops/cpu/loops.h"
#include "ops/cpu/reference.h"

namespace annulus::ref {
namespace {

std::int64_t row_of(std::int32_t id, std::int64_t V) {
  need(id >= 0 && id < V, "embedding: id " + std::to_string(id) + " outside the table");
  return id;
}

}  // namespace

void embed_fwd(const EmbedFwd& a) {
  const std::int64_t N = a.ids.shape[0], V = a.table.shape[0];
  const std::int64_t row = a.table.shape[1] * bytes_of(a.table.dtype);
  const std::int32_t* ids = a.ids.as<std::int32_t>();
  const char* table = static_cast<const char*>(a.table.data);
  char* y = static_cast<char*>(a.y.data);
  for (std::int64_t n = 0; n < N; ++n)
    std::memcpy(y + n * row, table + row_of(ids[n], V) * row, static_cast<std::size_t>(row));
}

void embed_bwd(const EmbedBwd& a) {
  const std::int64_t N = a.dy.shape[0], C = a.dy.shape[1], V = a.dtable.shape[0];
  const std::int32_t *ids = a.ids.as<std::int32_t>(), *order = a.order.as<std::int32_t>();
  float* dtable = a.dtable.as<float>();
  std::vector<double> sum(static_cast<std::size_t>(C));
  by_type(a.dy.dtype, [&]<class T>(T) {
    const T* dy = a.dy.as<T>();
    for (std::int64_t i = 0; i < N;) {  // one run of equal ids after another
      const std::int32_t id = ids[order[i]];
      float* out = dtable + row_of(id, V) * C;
      for (std::int64_t c = 0; c < C; ++c) sum[static_cast<std::size_t>(c)] = out[c];
      for (; i < N && ids[order[i]] == id; ++i) {
        const T* from = dy + order[i] * C;
        for (std::int64_t c = 0; c < C; ++c) sum[static_cast<std::size_t>(c)] += widen(from[c]);
      }
      for (std::int64_t c = 0; c < C; ++c) out[c] = static_cast<float>(sum[static_cast<std::size_t>(c)]);
    }
  });
}

}  // namespace annulus::ref
