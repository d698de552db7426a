// Experts have a tensor each in a Hugging Face folder, and one stack a layer everywhere else:
//   P.mlp.experts.{j}.gate_proj.weight (F, C) and up_proj  ->  P.mlp.experts.gate_up_proj (E, 2F, C)
//   P.mlp.experts.{j}.down_proj.weight (C, F)              ->  P.mlp.experts.down_proj    (E, C, F)
#pragma once
#include <memory>
#include <string>
#include <vector>
#include "io/weights.h"

namespace annulus {

/// The source with the tensors of single experts as stacks. Input error when some of a stack are missing or
/// their shapes or types differ. A source without such names, or with stacks already, is passed on.
std::unique_ptr<WeightSource> stack_experts(std::unique_ptr<WeightSource>);

/// A tensor of a folder, and where its elements lie in the weights it is written from.
struct SplitTensor {
  StoredTensor tensor;
  std::string from;     // the name there
  std::int64_t at = 0;  // its first element there
};
/// What a folder holds of these tensors: stacks become tensors of single experts, all else stays.
std::vector<SplitTensor> split_experts(const std::vector<StoredTensor>&);

}  // namespace annulus
