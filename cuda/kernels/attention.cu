// The calls of the portable attention: blocks become launches. All blocks of one run of queries are one
// launch, so that a query's running softmax stays in registers over them; likewise all blocks of one run of
// keys in the gradient of keys and values.
#include <vector>
#include "kernels/attention.h"
#include "kernels/attention_args.h"
#include "kernels/common.cuh"
#include "kernels/lse_merge.h"

namespace annulus::cuda {
namespace {

/// One run and the runs that its blocks pair it with, in the order of the blocks.
struct Group {
  Run mine;
  std::vector<Run> others;
};

bool same(const Run& a, const Run& b) {
  return a.at == b.at && a.position == b.position && a.count == b.count;
}

std::vector<Group> by_run(std::span<const AttentionBlock> blocks, bool of_queries) {
  std::vector<Group> groups;
  for (const AttentionBlock& b : blocks) {
    if (b.q_count == 0 || b.k_count == 0) continue;
    const Run q{b.q_at, b.q_position, b.q_count}, k{b.k_at, b.k_position, b.k_count};
    const Run& mine = of_queries ? q : k;
    auto at = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return same(g.mine, mine); });
    if (at == groups.end()) at = groups.insert(at, Group{mine, {}});
    at->others.push_back(of_queries ? k : q);
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group& a, const Group& b) { return a.mine.at < b.mine.at; });
  return groups;
}

/// Whether no row belongs to two groups.
bool apart(const std::vector<Group>& groups) {
  for (std::size_t i = 1; i < groups.size(); ++i)
    if (groups[i].mine.at < groups[i - 1].mine.at + groups[i - 1].mine.count) return false;
  return true;
}

/// Begins or ends rows [at, at + count) without any key.
void touch(const AttentionFwd& a, std::int64_t at, std::int64_t count, bool begins, bool ends,
           cudaStream_t stream) {
  if (count == 0 || !(begins || ends)) return;
  Tensor lse = a.lse;
  lse.data = a.lse.as<float>() + at;
  lse.shape[1] = count;
  lse.row_stride = a.lse.stride();
  launch_lse_merge({.o_blk = {},
                    .lse_blk = {},
                    .acc = a.acc ? a.acc.rows(at, count) : Tensor{},
                    .lse = lse,
                    .o = ends ? a.o.rows(at, count) : Tensor{},
                    .begins = begins,
                    .ends = ends},
                   stream);
}

void launch_group(AttentionFwdArgs args, const Group& group, bool tiles, bool bf16, cudaStream_t stream) {
  const bool begins = args.begins, ends = args.ends;
  const std::size_t all = group.others.size();
  need(all <= kMaxRuns || args.acc != nullptr, "attention_fwd: acc is needed for this many blocks");
  for (std::size_t from = 0; from < all; from += kMaxRuns) {
    args.queries = group.mine;
    args.count = static_cast<int>(std::min<std::size_t>(all - from, kMaxRuns));
    std::copy_n(group.others.begin() + static_cast<std::ptrdiff_t>(from), args.count, args.keys);
    args.begins = begins && from == 0;
    args.ends = ends && from + kMaxRuns >= all;
    if (!tiles || !launch_attention_fwd_tiles(args, stream)) launch_attention_fwd_plain(args, bf16, stream);
  }
}

using LaunchTiles = bool (*)(const AttentionBwdArgs&, cudaStream_t);
using LaunchPlain = void (*)(const AttentionBwdArgs&, bool, cudaStream_t);

void launch_group(AttentionBwdArgs args, const Group& group, bool tiles, bool bf16, LaunchTiles by_tiles,
                  LaunchPlain plain, cudaStream_t stream) {
  const std::size_t all = group.others.size();
  for (std::size_t from = 0; from < all; from += kMaxRuns) {
    args.mine = group.mine;
    args.count = static_cast<int>(std::min<std::size_t>(all - from, kMaxRuns));
    std::copy_n(group.others.begin() + static_cast<std::ptrdiff_t>(from), args.count, args.others);
    if (!tiles || !by_tiles(args, stream)) plain(args, bf16, stream);
  }
}

}  // namespace

void launch_attention_fwd(const AttentionFwd& a, cudaStream_t stream) {
  const std::int64_t Tq = a.q.shape[0], H = a.q.shape[1], D = a.q.shape[2], Tk = a.k.shape[0],
                     G = a.k.shape[1];
  a.k.expect({Tk, G, D}), a.v.expect({Tk, G, D}), a.first.expect({Tq}), a.lse.expect({H, Tq});
  need(G > 0 && H % G == 0, "attention_fwd: query heads are not a multiple of key/value heads");
  need(a.acc || (a.begins && a.ends), "attention_fwd: no acc");
  if (Tq * H * D == 0) return;
  const bool bf16 = is_bf16(a.q);
  const bool tiles = bf16 && a.scale > 0.0 && wide_rows(a.q, 8) && wide_rows(a.k, 8) && wide_rows(a.v, 8) &&
                     wide_rows(a.acc, 8) && (!a.ends || wide_rows(a.o, 8));
  AttentionFwdArgs args{.q = a.q.data,
                        .k = a.k.data,
                        .v = a.v.data,
                        .first = device<std::int64_t>(a.first),
                        .acc = device<float>(a.acc),
                        .lse = device<float>(a.lse),
                        .o = a.o.data,
                        .q_stride = a.q.stride(),
                        .k_stride = a.k.stride(),
                        .v_stride = a.v.stride(),
                        .acc_stride = a.acc.stride(),
                        .lse_stride = a.lse.stride(),
                        .o_stride = a.o.stride(),
                        .H = int(H),
                        .G = int(G),
                        .D = int(D),
                        .scale = float(a.scale),
                        .begins = a.begins,
                        .ends = a.ends,
                        .queries = {},
                        .count = 0,
                        .keys = {}};
  const std::vector<Group> groups = by_run(a.blocks, true);
  if (apart(groups)) {
    std::int64_t done = 0;
    for (const Group& group : groups) {
      touch(a, done, group.mine.at - done, a.begins, a.ends, stream);
      launch_group(args, group, tiles, bf16, stream);
      done = group.mine.at + group.mine.count;
    }
    touch(a, done, Tq - done, a.begins, a.ends, stream);
    return;
  }
  need(bool{a.acc}, "attention_fwd: acc is needed when runs of queries overlap");
  args.begins = args.ends = false;
  touch(a, 0, Tq, a.begins, false, stream);
  for (const Group& group : groups) launch_group(args, group, tiles, bf16, stream);
  touch(a, 0, Tq, false, a.ends, stream);
}

void launch_attention_bwd(const AttentionBwd& a, cudaStream_t stream) {
  const std::int64_t Tq = a.q.shape[0], H = a.q.shape[1], D = a.q.shape[2], Tk = a.k.shape[0],
                     G = a.k.shape[1];
  a.k.expect({Tk, G, D}), a.v.expect({Tk, G, D}), a.d_o.expect({Tq, H, D}), a.first.expect({Tq});
  a.lse.expect({H, Tq}), a.delta.expect({H, Tq});
  a.dq.expect({Tq, H, D}), a.dk.expect({Tk, G, D}), a.dv.expect({Tk, G, D});
  need(G > 0 && H % G == 0, "attention_bwd: query heads are not a multiple of key/value heads");
  const bool bf16 = is_bf16(a.q), overwrite = is_bf16(a.dq);
  need(a.dk.dtype == a.dq.dtype && a.dv.dtype == a.dq.dtype, "attention_bwd: types of gradients differ");
  if (Tq * Tk * H * D == 0) return;
  need(!overwrite || (bf16 && a.blocks.size() == 1 && a.blocks[0].q_count == Tq && a.blocks[0].k_count == Tk),
       "attention_bwd: gradients in bf16 take one block of all rows");
  const bool tiles = bf16 && a.scale > 0.0 && wide_rows(a.q, 8) && wide_rows(a.k, 8) && wide_rows(a.v, 8) &&
                     wide_rows(a.d_o, 8) && wide_rows(a.dq, 8) && wide_rows(a.dk, 8) && wide_rows(a.dv, 8);
  const AttentionBwdArgs args{.q = a.q.data,
                              .k = a.k.data,
                              .v = a.v.data,
                              .d_o = a.d_o.data,
                              .lse = device<float>(a.lse),
                              .delta = device<float>(a.delta),
                              .first = device<std::int64_t>(a.first),
                              .dq = a.dq.data,
                              .dk = a.dk.data,
                              .dv = a.dv.data,
                              .q_stride = a.q.stride(),
                              .k_stride = a.k.stride(),
                              .v_stride = a.v.stride(),
                              .d_o_stride = a.d_o.stride(),
                              .lse_stride = a.lse.stride(),
                              .delta_stride = a.delta.stride(),
                              .dq_stride = a.dq.stride(),
                              .dk_stride = a.dk.stride(),
                              .dv_stride = a.dv.stride(),
                              .H = int(H),
                              .G = int(G),
                              .D = int(D),
                              .scale = float(a.scale),
                              .overwrite = overwrite,
                              .mine = {},
                              .count = 0,
                              .others = {}};
  for (const Group& group : by_run(a.blocks, true))
    launch_group(args, group, tiles, bf16, launch_attention_dq_tiles, launch_attention_dq_plain, stream);
  for (const Group& group : by_run(a.blocks, false))
    launch_group(args, group, tiles, bf16, launch_attention_dkv_tiles, launch_attention_dkv_plain, stream);
}

}  // namespace annulus::cuda
