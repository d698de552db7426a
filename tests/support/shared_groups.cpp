#include "support/shared_groups.h"

namespace annulus::test {
namespace {

/// Passes every call on.
class Borrowed final : public Comm {
 public:
  explicit Borrowed(std::shared_ptr<Comm> real) : real_(std::move(real)) {}
  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  const char* kind() const override { return real_->kind(); }
  void all_reduce(Lane lane, const Tensor& inout, Reduce op) override { real_->all_reduce(lane, inout, op); }
  void all_gather(Lane lane, const Tensor& mine, const Tensor& all) override {
    real_->all_gather(lane, mine, all);
  }
  void reduce_scatter(Lane lane, const Tensor& all, const Tensor& mine) override {
    real_->reduce_scatter(lane, all, mine);
  }
  void exchange(Lane lane, std::span<const Send> sends, std::span<const Receive> receives) override {
    real_->exchange(lane, sends, receives);
  }
  void all_reduce(std::span<std::int64_t> v, Reduce op) override { real_->all_reduce(v, op); }
  void all_reduce(std::span<double> v, Reduce op) override { real_->all_reduce(v, op); }
  std::vector<std::string> all_gather(const std::string& mine) override { return real_->all_gather(mine); }
  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine) override {
    return real_->all_gather(mine);
  }
  void broadcast(std::string& bytes, int root) override { real_->broadcast(bytes, root); }
  void barrier() override { real_->barrier(); }
  std::unique_ptr<Comm> split(int color) const override { return real_->split(color); }
  std::unique_ptr<Comm> split_by(const std::function<int(int)>& color) const override {
    return real_->split_by(color);
  }
  std::unique_ptr<Comm> split_by_node() const override { return real_->split_by_node(); }
  void* mpi_handle() const override { return real_->mpi_handle(); }

 private:
  std::shared_ptr<Comm> real_;
};

}  // namespace

std::unique_ptr<Comm> SharedGroups::device_comm(std::unique_ptr<Comm> group) {
  std::string members;
  for (const std::string& rank : group->all_gather(std::to_string(rank_))) members += rank + " ";
  std::vector<std::shared_ptr<Comm>>& made = groups_[members + group->kind()];
  for (const std::shared_ptr<Comm>& comm : made)
    if (comm.use_count() == 1) return std::make_unique<Borrowed>(comm);
  made.push_back(real_.device_comm(std::move(group)));
  return std::make_unique<Borrowed>(made.back());
}

}  // namespace annulus::test
