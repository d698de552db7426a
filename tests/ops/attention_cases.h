#pragma once
#include <algorithm>
#include <cmath>
#include <vector>
#include "support/plain_attention.h"

namespace annulus::test {

/// One block: queries [q_from, q_from + q_count) of a row against its keys [k_from, k_from + k_count).
struct AttentionCase {
  const char* why;
  std::int64_t H, G, D;
  std::int64_t q_from, q_count, k_from, k_count;
  Cover cover;
  std::vector<std::int64_t> documents;  // lengths, from the row's start; what is left is one document more
  std::int64_t window = 0;              // 0: none
  double spread = 1.0;                  // of q and k: scores spread by its square
  double offset = 0.0;                  // added to every score, through the first dimension of q and k
  std::int64_t gap = 0;                 // elements between rows
};

inline const std::vector<AttentionCase>& attention_cases() {
  static const std::vector<AttentionCase> cases{
      {"one query, one key", 1, 1, 8, 0, 1, 0, 1, Cover::causal, {}},
      {"causal, odd", 4, 4, 64, 0, 61, 0, 61, Cover::causal, {}},
      {"causal, several tiles, GQA 4", 4, 1, 64, 0, 301, 0, 301, Cover::causal, {}},
      {"full, GQA 3", 6, 2, 24, 70, 37, 0, 67, Cover::full, {}},
      {"full, longer than a tile of keys", 2, 2, 40, 600, 33, 0, 601, Cover::full, {}},
      {"one query, many keys", 3, 1, 128, 130, 1, 0, 131, Cover::partial, {}},
      {"many queries, one key", 2, 1, 64, 0, 65, 0, 1, Cover::partial, {}},
      {"packed documents", 4, 2, 64, 0, 149, 0, 149, Cover::partial, {1, 40, 7, 63}},
      {"sliding window", 2, 1, 128, 0, 257, 0, 257, Cover::partial, {}, 19},
      {"window and documents, strided rows",
       4,
       2,
       64,
       0,
       203,
       0,
       203,
       Cover::partial,
       {50, 90},
       33,
       1.0,
       0.0,
       64},
      {"some queries see no key", 2, 2, 24, 40, 50, 20, 30, Cover::partial, {35, 20}, 0},
      {"no query sees a key", 2, 1, 16, 40, 20, 0, 20, Cover::partial, {40}, 0},
      {"keys after queries are hidden", 2, 1, 64, 20, 40, 30, 50, Cover::partial, {}},
      {"very large scores", 4, 2, 64, 0, 97, 0, 97, Cover::causal, {}, 0, 1.0, 300.0},
      {"very negative scores", 4, 2, 64, 0, 97, 0, 97, Cover::causal, {}, 0, 1.0, -300.0},
      {"sharp softmax", 2, 1, 128, 0, 131, 0, 131, Cover::causal, {}, 0, 5.0},
      // Heads of 128 and 64, which engines of their own compute on a GPU.
      {"several tiles of 128", 2, 1, 128, 0, 261, 0, 261, Cover::causal, {}},
      {"full, several tiles, no multiple of any", 2, 2, 128, 600, 167, 0, 331, Cover::full, {}},
      {"one query of 64, many keys", 3, 1, 64, 130, 1, 0, 131, Cover::partial, {}},
      {"some queries of 128 see no key", 2, 1, 128, 40, 150, 20, 130, Cover::partial, {35, 120}, 0},
      {"some queries of 64 see no key", 2, 1, 64, 40, 150, 20, 130, Cover::partial, {35, 120}, 0},
      {"no query of 128 sees a key", 2, 1, 128, 40, 20, 0, 20, Cover::partial, {40}, 0},
      {"no query of 64 sees a key", 2, 1, 64, 40, 20, 0, 20, Cover::partial, {40}, 0},
      {"very large scores, 128", 2, 1, 128, 0, 133, 0, 133, Cover::causal, {}, 0, 1.0, 300.0},
      {"very negative scores, 128", 2, 1, 128, 0, 133, 0, 133, Cover::causal, {}, 0, 1.0, -300.0},
      {"smallest odd head", 3, 3, 1, 5, 9, 0, 14, Cover::partial, {}}};
  return cases;
}

/// first[p] of the row positions [from, from + count).
inline std::vector<std::int64_t> first_visible(const std::vector<std::int64_t>& documents,
                                               std::int64_t window, std::int64_t from, std::int64_t count) {
  std::vector<std::int64_t> first;
  for (std::int64_t p = from; p < from + count; ++p) {
    std::int64_t start = 0;
    for (const std::int64_t length : documents) {
      if (start + length > p) break;
      start += length;
    }
    first.push_back(window > 0 ? std::max(start, p - window + 1) : start);
  }
  return first;
}

/// Values of type T for a case; q and k carry the offset of the scores in their first dimension.
inline AttentionInputs attention_inputs(const AttentionCase& c, DType T) {
  AttentionInputs in;
  in.Tq = c.q_count;
  in.Tk = c.k_count;
  in.H = c.H;
  in.G = c.G;
  in.D = c.D;
  in.scale = 1.0 / std::sqrt(static_cast<double>(c.D));
  in.q = to_doubles(random_values(T, 1, {in.Tq, in.H, in.D}, c.spread));
  in.k = to_doubles(random_values(T, 2, {in.Tk, in.G, in.D}, c.spread));
  in.v = to_doubles(random_values(T, 3, {in.Tk, in.G, in.D}));
  if (c.offset != 0.0) {
    const double part = to_floats({std::sqrt(std::abs(c.offset) / in.scale)}, T)[0];
    for (std::size_t i = 0; i < in.q.size(); i += static_cast<std::size_t>(c.D)) in.q[i] = part;
    for (std::size_t i = 0; i < in.k.size(); i += static_cast<std::size_t>(c.D))
      in.k[i] = std::copysign(part, c.offset);
  }
  in.first = first_visible(c.documents, c.window, c.q_from, c.q_count);
  in.blocks = {{.q_count = c.q_count,
                .q_position = c.q_from,
                .k_count = c.k_count,
                .k_position = c.k_from,
                .cover = c.cover}};
  return in;
}

/// Error of e^score in f32: D products are added up, in any order, each sum rounded by up to a half-ulp of
/// what is there: a standard deviation of 0.58 sqrt(D) half-ulps, of which the bound is 3.5; then a
/// subtraction and e^x.
inline double score_error(double magnitude, std::int64_t D) {
  return kF32 * (8 + 2 * std::sqrt(static_cast<double>(D)) * magnitude);
}

}  // namespace annulus::test
