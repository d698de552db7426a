// A backend whose groups of ranks outlive their users. NCCL takes a quarter of a second to make a group of
// ranks that share a GPU, and tests of layouts make hundreds of the same few.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "ops/backend.h"

namespace annulus::test {

/// Everything is `real`'s but device_comm: a group of the same members, which nobody uses any more, is used
/// again. Ranks make and drop their groups in the same order, so all members find the same one.
class SharedGroups : public Backend {
 public:
  SharedGroups(Backend& real, int rank) : real_(real), rank_(rank) {}
  Queue& queue() override { return real_.queue(); }
  Memory& memory() override { return real_.memory(); }
  Memory& pinned() override { return real_.pinned(); }
  Ops& ops() override { return real_.ops(); }
  std::unique_ptr<Comm> device_comm(std::unique_ptr<Comm> group) override;
  std::int64_t device_used_bytes() const override { return real_.device_used_bytes(); }
  std::int64_t device_free_bytes() const override { return real_.device_free_bytes(); }
  double peak_flops() const override { return real_.peak_flops(); }
  std::string describe() const override { return real_.describe(); }

 private:
  Backend& real_;
  int rank_;
  std::map<std::string, std::vector<std::shared_ptr<Comm>>> groups_;  // by their members
};

}  // namespace annulus::test
