// A pretended group: rank r of R without the others. Every pretended peer holds what this rank holds, so sums
// are this rank's values times R, maxima and broadcasts are what they were, gathers repeat, and what arrives
// in an exchange is this rank's own sends over again. Bytes that a real group would send are counted.
#include <algorithm>
#include "comm/comm.h"

namespace annulus {
namespace {

class LoopbackComm : public Comm {
 public:
  using Comm::all_gather;
  LoopbackComm(Queue& queue, int rank, int size, Traffic* traffic, Scale scale)
      : queue_(queue), rank_(rank), size_(size), traffic_(traffic), scale_(std::move(scale)) {
    need(size >= 1 && rank >= 0 && rank < size, "loopback group: rank outside the group");
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* kind() const override { return "loopback"; }

  void all_reduce(Lane lane, const Tensor& inout, Reduce reduce) override {
    count(Collective::all_reduce, lane, 2 * inout.bytes() * (size_ - 1) / size_);
    if (reduce == Reduce::sum) multiply(lane, inout);
  }

  void all_gather(Lane lane, const Tensor& mine, const Tensor& all) override {
    need(all.size() == mine.size() * size_ && all.dtype == mine.dtype,
         std::string(mine.name) + ": all_gather sizes differ");
    count(Collective::all_gather, lane, mine.bytes() * (size_ - 1));
    for (int r = 0; r < size_; ++r) copy(lane, mine, all.span(r * mine.size(), mine.size()));
  }

  void reduce_scatter(Lane lane, const Tensor& all, const Tensor& mine) override {
    need(all.size() == mine.size() * size_ && all.dtype == mine.dtype,
         std::string(mine.name) + ": reduce_scatter sizes differ");
    count(Collective::reduce_scatter, lane, mine.bytes() * (size_ - 1));
    copy(lane, all.span(rank_ * mine.size(), mine.size()), mine);
    multiply(lane, mine);
  }

  /// What arrives from a peer is what this rank sends itself, each in its turn. Where it sends itself
  /// nothing, the i-th receive is filled with the bytes of send i modulo their number, from the start again
  /// when they end; with zeros when nothing is sent.
  void exchange(Lane lane, std::span<const Send> sends, std::span<const Receive> receives) override {
    std::vector<Tensor> own, others;
    bool to_itself = false;
    for (const Send& s : sends) {
      if (s.to != rank_) count(Collective::exchange, lane, s.data.bytes());
      to_itself = to_itself || s.to == rank_;
      if (s.data.size() > 0) (s.to == rank_ ? own : others).push_back(as_bytes(s.data));
    }
    const std::vector<Tensor>& sources = to_itself ? own : others;
    std::vector<std::size_t> turn(static_cast<std::size_t>(size_), 0);
    std::size_t next = 0;
    for (const Receive& r : receives) {
      if (r.data.size() == 0) continue;
      const Tensor to = as_bytes(r.data);
      if (sources.empty()) {
        queue_.zero(lane, to);
        continue;
      }
      const std::size_t i = to_itself ? turn[static_cast<std::size_t>(r.from)]++ : next++;
      const Tensor& from = sources[i % sources.size()];
      for (std::int64_t at = 0; at < to.size(); at += from.size()) {
        const std::int64_t n = std::min(from.size(), to.size() - at);
        copy(lane, from.span(0, n), to.span(at, n));
      }
    }
  }

  void all_reduce(std::span<std::int64_t> values, Reduce reduce) override {
    if (reduce == Reduce::sum)
      for (std::int64_t& v : values) v *= size_;
  }
  void all_reduce(std::span<double> values, Reduce reduce) override {
    if (reduce == Reduce::sum)
      for (double& v : values) v *= size_;
  }
  std::vector<std::string> all_gather(const std::string& mine) override {
    return std::vector<std::string>(static_cast<std::size_t>(size_), mine);
  }
  void broadcast(std::string&, int) override {}
  void barrier() override {}

  /// Peers hold what this rank holds, the color too: the whole group again.
  std::unique_ptr<Comm> split(int) const override {
    return std::make_unique<LoopbackComm>(queue_, rank_, size_, traffic_, scale_);
  }
  std::unique_ptr<Comm> split_by(const std::function<int(int)>& color) const override {
    int part_size = 0, part_rank = 0;
    for (int r = 0; r < size_; ++r) {
      if (color(r) != color(rank_)) continue;
      if (r < rank_) ++part_rank;
      ++part_size;
    }
    return std::make_unique<LoopbackComm>(queue_, part_rank, part_size, traffic_, scale_);
  }

 private:
  void count(Collective what, Lane lane, std::int64_t bytes) {
    if (traffic_ == nullptr) return;
    ++traffic_->calls[static_cast<int>(what)][static_cast<int>(lane)];
    traffic_->bytes[static_cast<int>(what)][static_cast<int>(lane)] += bytes;
  }
  void multiply(Lane lane, const Tensor& t) {
    if (scale_ && size_ > 1 && t.size() > 0) scale_(lane, t, size_);
  }
  void copy(Lane lane, const Tensor& from, const Tensor& to) {
    if (from.data != to.data && from.size() > 0)
      queue_.copy(lane, from.span(0, from.size()), to.span(0, to.size()));
  }
  static Tensor as_bytes(const Tensor& t) {
    need(t.contiguous(), std::string(t.name) + ": exchange of a strided tensor");
    return make_tensor(t.name, t.data, DType::u8, {t.bytes()}, t.place);
  }

  Queue& queue_;
  int rank_, size_;
  Traffic* traffic_;
  Scale scale_;
};

}  // namespace

std::int64_t Traffic::total() const {
  std::int64_t sum = 0;
  for (const auto& lanes : bytes)
    for (std::int64_t b : lanes) sum += b;
  return sum;
}

std::unique_ptr<Comm> make_loopback_comm(Queue& queue, int rank, int size, Traffic* traffic, Scale scale) {
  return std::make_unique<LoopbackComm>(queue, rank, size, traffic, std::move(scale));
}

}  // namespace annulus
