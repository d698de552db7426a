// Model flops by the convention of our tables: visible pairs only (a causal document of n tokens has
// n (n + 1) / 2), backward twice the forward, recomputation not counted. A frozen matrix has no gradient of
// its own: its backward counts once.
#pragma once
#include <cstdint>
#include "config/lora.h"
#include "config/model_config.h"
#include "parallel/row_map.h"

namespace annulus {

/// Visible (query, key) pairs of one head over the documents of a row.
double visible_pairs(const RowShape&, std::int64_t window);
/// Flops of forward and backward over one row, over all ranks that share it.
double model_flops(const ModelConfig&, const LoraConfig&, const RowShape&);

}  // namespace annulus
