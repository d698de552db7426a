// What the kernels of the portable attention get. A launch serves one run of rows (queries, or keys in the
// gradient of keys and values) against a list of runs of the other kind.
#pragma once
#include <cuda_runtime_api.h>
#include <cstdint>

namespace annulus::cuda {

/// Neighbouring rows: `at` in the call's tensors, `position` of the first in the packed row.
struct Run {
  std::int64_t at, position, count;
};

inline constexpr int kMaxRuns = 64;  // of a launch; they travel in its parameters

struct AttentionFwdArgs {
  const void *q, *k, *v;      // (Tq, H, D), (Tk, G, D) in T
  const std::int64_t* first;  // (Tq)
  float* acc;                 // (Tq, H, D); unused where begins and ends
  float* lse;                 // (H, Tq)
  void* o;                    // (Tq, H, D) in T
  std::int64_t q_stride, k_stride, v_stride, acc_stride, lse_stride, o_stride;
  int H, G, D;
  float scale;
  bool begins, ends;
  Run queries;
  int count;
  Run keys[kMaxRuns];
};

struct AttentionBwdArgs {
  const void *q, *k, *v, *d_o;  // in T
  const float *lse, *delta;     // (H, Tq)
  const std::int64_t* first;    // (Tq)
  void *dq, *dk, *dv;           // f32: added to; T: overwritten
  std::int64_t q_stride, k_stride, v_stride, d_o_stride, lse_stride, delta_stride, dq_stride, dk_stride,
      dv_stride;
  int H, G, D;
  float scale;
  bool overwrite;  // gradients are in T
  Run mine;        // queries for dq, keys for dk and dv
  int count;
  Run others[kMaxRuns];
};

/// bf16 on the tensor cores; false when D or the alignment does not suit, and nothing was launched.
bool launch_attention_fwd_tiles(const AttentionFwdArgs&, cudaStream_t);
bool launch_attention_dq_tiles(const AttentionBwdArgs&, cudaStream_t);
bool launch_attention_dkv_tiles(const AttentionBwdArgs&, cudaStream_t);

/// f32 or bf16, any D up to 256, on plain arithmetic.
void launch_attention_fwd_plain(const AttentionFwdArgs&, bool bf16, cudaStream_t);
void launch_attention_dq_plain(const AttentionBwdArgs&, bool bf16, cudaStream_t);
void launch_attention_dkv_plain(const AttentionBwdArgs&, bool bf16, cudaStream_t);

}  // namespace annulus::cuda
