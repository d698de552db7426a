#include "model/row_loader.h"
#include <algorithm>
#include <numeric>

namespace annulus {

RowLoader::RowLoader(Backend& backend, std::vector<std::int64_t> windows)
    : backend_(backend), host_(backend.queue(), backend.pinned()), windows_(std::move(windows)) {}

Tensor RowLoader::buffer(const char* name, DType type, std::int64_t n) {
  return host_.keep(Region::workspace, name, type, {n});
}

/// `fill` writes the host's buffer, where there is one to write to.
template <class Fill>
Tensor RowLoader::bring(Arena& arena, const Tensor& host, Fill fill) {
  if (backend_.pinned().real()) fill();
  const Tensor t = arena.take(Region::workspace, host.name, host.dtype, {host.size()});
  backend_.queue().copy(Lane::compute, host, t);
  return t;
}

RowInputs RowLoader::load(Arena& arena, const LocalRow& row, const Grid& grid, bool ordered) {
  const std::int64_t T = row.map.local_tokens(), members = row.map.member_tokens();
  const auto whole = static_cast<std::size_t>(T);
  need(row.ids.size() == whole && row.targets.size() == whole && row.positions.size() == whole,
       "row loader: the row's vectors do not have its number of local tokens");
  if (!ids_) {
    ids_ = buffer("ids", DType::i32, T);
    targets_ = buffer("targets", DType::i32, T);
    order_ = buffer("order", DType::i32, T);
    positions_ = buffer("positions", DType::i64, T);
    for (std::size_t i = 0; i < windows_.size(); ++i) first_.push_back(buffer("first", DType::i64, members));
  }
  need(ids_.size() == T, "row loader: rows of one run must have the same number of local tokens");

  RowInputs in;
  in.map = &row.map;
  in.tokens = T;
  in.windows = windows_;
  in.ids = bring(arena, ids_, [&] { std::copy(row.ids.begin(), row.ids.end(), ids_.as<std::int32_t>()); });
  in.targets = bring(arena, targets_,
                     [&] { std::copy(row.targets.begin(), row.targets.end(), targets_.as<std::int32_t>()); });
  in.positions = bring(arena, positions_, [&] {
    std::copy(row.positions.begin(), row.positions.end(), positions_.as<std::int64_t>());
  });
  if (ordered)
    in.order = bring(arena, order_, [&] {
      auto* order = order_.as<std::int32_t>();
      std::iota(order, order + T, 0);
      std::stable_sort(order, order + T, [&](std::int32_t a, std::int32_t b) {
        return row.ids[static_cast<std::size_t>(a)] < row.ids[static_cast<std::size_t>(b)];
      });
    });
  for (std::size_t i = 0; i < windows_.size(); ++i)
    in.first.push_back(bring(arena, first_[i], [&] {
      auto* first = first_[i].as<std::int64_t>();
      for (const Run& run : row.map.runs(grid.ring_index))
        for (std::int64_t n = 0; n < run.count; ++n)
          first[run.at + n] = row.map.first(run.position + n, windows_[i]);
    }));
  return in;
}

void RowLoader::give(Arena& arena, const RowInputs& in) {
  for (const Tensor& t : in.first) arena.give(t);
  if (in.order) arena.give(in.order);
  arena.give(in.positions);
  arena.give(in.targets);
  arena.give(in.ids);
}

}  // namespace annulus
