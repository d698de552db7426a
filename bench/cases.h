// Every operation of ops/ops.h at the sizes of Qwen3-8B, those of mixtures of experts at Qwen3-30B-A3B's.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "measure.h"

namespace annulus::bench {

/// Letters as in src/README.md.
struct Sizes {
  std::int64_t N = 32768;  // tokens
  std::int64_t C = 4096, F = 12288, H = 32, G = 8, D = 128, V = 151936;
  std::int64_t loss_tile = 3456;
  std::int64_t E = 128, K = 8, moe_C = 2048, moe_F = 768;  // experts, a token's; width, an expert's MLP width
  double least_seconds = 0.3, attention_seconds = 1.0;

  std::int64_t heads() const { return H + 2 * G; }
  /// Elements of one layer's matrices: what the operations on flat slices get.
  std::int64_t layer() const { return (heads() + H) * D * C + 3 * F * C; }
};

enum class Kind { memory, matmul, attention };

struct Case {
  Kind kind;
  std::string name;   // the method of Ops, then what tells its cases apart
  std::string shape;  // for the table
  double amount = 0;  // memory: bytes a call must move, each input read and each output written once;
                      // others: flop
  double seconds = 0;
  std::function<Work(Backend&, Pool&)> prepare;
};

std::vector<Case> memory_cases(const Sizes&);
std::vector<Case> matmul_cases(const Sizes&);
std::vector<Case> attention_cases(const Sizes&);
std::vector<Case> moe_memory_cases(const Sizes&);
std::vector<Case> moe_matmul_cases(const Sizes&);

}  // namespace annulus::bench
