// What the two stable counting sorts share. Items are cut in chunks; a first kernel counts the items of each
// key in each chunk, the scan here turns counts into places, a second kernel puts items there.
#pragma once
#include <cuda_runtime_api.h>
#include <cstdint>
#include "kernels/scratch.h"

namespace annulus::cuda {

struct Counts {
  std::int32_t* of_chunk = nullptr;  // (keys, chunks): a count, then the items of that key in chunks before
  std::int32_t* of_key = nullptr;    // (keys): the items of each key
  std::int64_t keys = 0, chunks = 0;
  std::int64_t chunk = 0;  // items of one
};

/// Memory for the counts, with chunks of `least` items or as many more as the scratch asks for.
Counts make_counts(std::int64_t items, std::int64_t keys, std::int64_t least, Scratch);

void launch_scan_counts(const Counts&, cudaStream_t);

}  // namespace annulus::cuda
