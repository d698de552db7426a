// Index building and the movement of rows between tokens and experts.
#include <algorithm>
#include <cstring>
#include <vector>
#include "ops/cpu/loops.h"
#include "ops/cpu/reference.h"

namespace annulus::ref {
namespace {

std::int64_t row_of(std::int32_t index, std::int64_t rows) {
  need(index < rows, "rows: index " + std::to_string(index) + " is beyond the " + std::to_string(rows));
  return index;
}

}  // namespace

void dispatch_index(const DispatchIndex& a) {
  const std::int64_t N = a.ids.shape[0], K = a.ids.shape[1], R = a.place.shape[1], S = a.token.shape[0];
  const std::int32_t* ids = a.ids.as<std::int32_t>();
  std::int64_t s = 0;
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t n = 0; n < N; ++n) {
      const auto here = [&](std::int32_t id) { return id >= 0 && id / a.experts == r; };
      std::int32_t& place = a.place.as<std::int32_t>()[n * R + r];
      place = -1;
      if (std::none_of(ids + n * K, ids + (n + 1) * K, here)) continue;
      need(s < S, "dispatch_index: there are more rows to send than were counted");
      for (std::int64_t k = 0; k < K; ++k) {
        const std::int32_t id = ids[n * K + k];
        a.slots.as<std::int32_t>()[s * K + k] = here(id) ? id - static_cast<std::int32_t>(r * a.experts) : -1;
        a.shares.as<float>()[s * K + k] = here(id) ? a.weights.as<float>()[n * K + k] : 0.f;
      }
      a.token.as<std::int32_t>()[s] = static_cast<std::int32_t>(n);
      place = static_cast<std::int32_t>(s++);
    }
  need(s == S, "dispatch_index: there are fewer rows to send than were counted");
}

void expert_index(const ExpertIndex& a) {
  const std::int64_t M = a.slots.shape[0], K = a.slots.shape[1], P = a.row.shape[0];
  const std::int32_t* slots = a.slots.as<std::int32_t>();
  std::vector<std::int64_t> next(static_cast<std::size_t>(a.experts) + 1, 0);
  for (std::int64_t i = 0; i < M * K; ++i) {
    need(slots[i] < a.experts, "expert_index: slot " + std::to_string(slots[i]) + " is none of the rank's");
    if (slots[i] >= 0) ++next[static_cast<std::size_t>(slots[i]) + 1];
  }
  for (std::size_t e = 1; e < next.size(); ++e) next[e] += next[e - 1];
  need(next.back() == P, "expert_index: the pairs are not as many as were counted");
  for (std::int64_t i = 0; i < M * K; ++i) {
    std::int32_t& place = a.place.as<std::int32_t>()[i];
    place = -1;
    if (slots[i] < 0) continue;
    const std::int64_t p = next[static_cast<std::size_t>(slots[i])]++;
    place = static_cast<std::int32_t>(p);
    a.row.as<std::int32_t>()[p] = static_cast<std::int32_t>(i / K);
    a.share.as<float>()[p] = a.shares.as<float>()[i];
  }
}

void gather_rows(const GatherRows& a) {
  const std::int64_t I = a.index.shape[0], row = a.x.shape[1] * bytes_of(a.x.dtype);
  const std::int32_t* index = a.index.as<std::int32_t>();
  const char* x = static_cast<const char*>(a.x.data);
  char* y = static_cast<char*>(a.y.data);
  for (std::int64_t i = 0; i < I && row > 0; ++i) {
    if (index[i] < 0)
      std::memset(y + i * row, 0, static_cast<std::size_t>(row));
    else
      std::memcpy(y + i * row, x + row_of(index[i], a.x.shape[0]) * row, static_cast<std::size_t>(row));
  }
}

void combine_rows(const CombineRows& a) {
  const std::int64_t N = a.index.shape[0], J = a.index.shape[1], C = a.x.shape[1];
  const std::int32_t* index = a.index.as<std::int32_t>();
  std::vector<double> sum(static_cast<std::size_t>(C));
  by_type(a.x.dtype, [&]<class T>(T) {
    for (std::int64_t n = 0; n < N; ++n) {
      const T* add = a.add ? a.add.as<T>() + n * C : nullptr;
      for (std::int64_t c = 0; c < C; ++c)
        sum[static_cast<std::size_t>(c)] = add != nullptr ? widen(add[c]) : 0.f;
      for (std::int64_t j = 0; j < J; ++j) {
        if (index[n * J + j] < 0) continue;
        const T* x = a.x.as<T>() + row_of(index[n * J + j], a.x.shape[0]) * C;
        const double w = a.weights ? a.weights.as<float>()[n * J + j] : 1.f;
        for (std::int64_t c = 0; c < C; ++c) sum[static_cast<std::size_t>(c)] += w * widen(x[c]);
      }
      T* y = a.y.as<T>() + n * C;
      for (std::int64_t c = 0; c < C; ++c)
        y[c] = store<T>(static_cast<float>(sum[static_cast<std::size_t>(c)]));
    }
  });
}

}  // namespace annulus::ref
