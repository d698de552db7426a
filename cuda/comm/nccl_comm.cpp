#include "comm/nccl_comm.h"

#include <nccl.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include "core/cuda_memory.h"

namespace annulus::cuda {
namespace {

void nccl(ncclResult_t code, std::string_view call, ncclComm_t comm = nullptr,
          std::source_location at = std::source_location::current()) {
  if (code == ncclSuccess) return;
  const char* more = ncclGetLastError(comm);
  fail(
      call,
      std::string(ncclGetErrorString(code)) + (more != nullptr && *more != 0 ? std::string(": ") + more : ""),
      at);
}

ncclDataType_t type_of(const Tensor& t) {
  switch (t.dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::i64:
      return ncclInt64;
    case DType::i32:
      return ncclInt32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::u8:
      return ncclUint8;
  }
  fail("nccl", std::string(t.name) + ": unknown dtype");
}

ncclRedOp_t operation(Reduce reduce) {
  return reduce == Reduce::sum ? ncclSum : ncclMax;
}

std::size_t count(const Tensor& t) {
  return static_cast<std::size_t>(t.size());
}
std::size_t byte_count(const Tensor& t) {
  return static_cast<std::size_t>(t.bytes());
}

void need_device(const Tensor& t) {
  need(t.place == Place::device && t.contiguous(),
       std::string(t.name) + ": NCCL takes contiguous device tensors");
}

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "?";
  return name;
}

/// Ranks of one device work through sockets when NCCL takes them for ranks of different hosts. It reads these
/// variables once, at its first call.
void pretend_different_hosts(const std::string& host, int rank, bool one_host) {
  const std::string id = host + "-" + std::to_string(rank);
  need(setenv("NCCL_HOSTID", id.c_str(), 0) == 0, "setenv NCCL_HOSTID");
  if (one_host) need(setenv("NCCL_SOCKET_IFNAME", "lo", 0) == 0, "setenv NCCL_SOCKET_IFNAME");
}

/// Every rank of the group tells its host and device; the same on all, so all throw alike.
void check_devices(const NcclContext& context, Comm& group) {
  const std::string host = host_name();
  std::map<std::string, int> owner;
  bool shared = false, one_host = true;
  const std::vector<std::string> all = group.all_gather(host + " " + context.device);
  for (int r = 0; r < group.size(); ++r) {
    const std::string& where = all[static_cast<std::size_t>(r)];
    one_host = one_host && where.starts_with(host + " ");
    const auto [other, first] = owner.emplace(where, r);
    if (first) continue;
    shared = true;
    if (!context.share)
      environment_error("ranks " + std::to_string(other->second) + " and " + std::to_string(r) +
                        " of a group have the same GPU (" + where +
                        "): start one rank per GPU, or set device.share=true for a test");
  }
  if (shared) pretend_different_hosts(host, g_rank_for_messages, one_host);
}

/// A call as the watchdog sees it: under way on the host, then queued, then passed.
struct Call {
  std::atomic<bool> queued{false};
  Event event;
  bool done() const {
    // An error of the device is not this call's: whoever waits for the device reports it.
    return queued.load(std::memory_order_acquire) &&
           (event.get() == nullptr || cudaEventQuery(event.get()) != cudaErrorNotReady);
  }
};

class NcclComm final : public Comm {
 public:
  NcclComm(const NcclContext& context, std::unique_ptr<Comm> host)
      : context_(context), host_(std::move(host)) {
    check_devices(context_, *host_);
    ncclUniqueId id{};
    if (rank() == 0) nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::string bytes(id.internal, sizeof id.internal);
    host_->broadcast(bytes, 0);
    need(bytes.size() == sizeof id.internal, "NCCL's unique id came in another size");
    std::memcpy(id.internal, bytes.data(), bytes.size());
    member_ = context_.watchdog->join([this] { return failure(); });
    try {
      const auto call = begin("start of a group", 0, nullptr);
      ncclComm_t comm = nullptr;
      nccl(ncclCommInitRank(&comm, size(), id, rank()), "ncclCommInitRank");
      comm_.store(comm);
      call->queued = true;
    } catch (...) {
      context_.watchdog->leave(member_);
      throw;
    }
  }

  ~NcclComm() override {
    context_.watchdog->leave(member_);
    // When an error unwinds this rank alone, the others are not here to take part, and the process ends
    // anyway.
    if (std::uncaught_exceptions() > 0) return;
    const ncclResult_t code = ncclCommDestroy(comm_.load());
    if (code != ncclSuccess) std::fprintf(stderr, "warning: ncclCommDestroy: %s\n", ncclGetErrorString(code));
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const char* kind() const override { return "nccl"; }

  void all_reduce(Lane lane, const Tensor& inout, Reduce reduce) override {
    need_device(inout);
    if (inout.size() == 0) return;
    issue("all_reduce", lane, inout.bytes(), [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(inout.data, inout.data, count(inout), type_of(inout), operation(reduce), comm,
                           stream);
    });
  }

  void all_gather(Lane lane, const Tensor& mine, const Tensor& all) override {
    need_device(mine), need_device(all);
    need(mine.dtype == all.dtype && all.size() == mine.size() * size(),
         std::string(all.name) + ": all_gather needs room for " + std::to_string(size()) + " times " +
             mine.name);
    if (mine.size() == 0) return;
    issue("all_gather", lane, all.bytes(), [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(mine.data, all.data, byte_count(mine), ncclUint8, comm, stream);
    });
  }

  void reduce_scatter(Lane lane, const Tensor& all, const Tensor& mine) override {
    need_device(mine), need_device(all);
    need(mine.dtype == all.dtype && all.size() == mine.size() * size(),
         std::string(all.name) + ": reduce_scatter needs " + std::to_string(size()) + " times " + mine.name);
    if (mine.size() == 0) return;
    issue("reduce_scatter", lane, all.bytes(), [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(all.data, mine.data, count(mine), type_of(mine), ncclSum, comm, stream);
    });
  }

  void exchange(Lane lane, std::span<const Send> sends, std::span<const Receive> receives) override {
    std::int64_t bytes = 0;
    for (const Send& s : sends) need_device(s.data), bytes += s.data.bytes();
    for (const Receive& r : receives) need_device(r.data), bytes += r.data.bytes();
    if (bytes == 0) return;
    issue("exchange", lane, bytes, [&](ncclComm_t comm, cudaStream_t stream) {
      nccl(ncclGroupStart(), "ncclGroupStart");
      for (const Send& s : sends)
        if (s.data.size() > 0)
          nccl(ncclSend(s.data.data, byte_count(s.data), ncclUint8, s.to, comm, stream), "ncclSend", comm);
      for (const Receive& r : receives)
        if (r.data.size() > 0)
          nccl(ncclRecv(r.data.data, byte_count(r.data), ncclUint8, r.from, comm, stream), "ncclRecv", comm);
      return ncclGroupEnd();
    });
  }

  void all_reduce(std::span<std::int64_t> values, Reduce reduce) override {
    host_->all_reduce(values, reduce);
  }
  void all_reduce(std::span<double> values, Reduce reduce) override { host_->all_reduce(values, reduce); }
  std::vector<std::string> all_gather(const std::string& mine) override { return host_->all_gather(mine); }
  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine) override {
    return host_->all_gather(mine);
  }
  void broadcast(std::string& bytes, int root) override { host_->broadcast(bytes, root); }
  void barrier() override { host_->barrier(); }

  std::unique_ptr<Comm> split(int color) const override {
    return make_device_comm(context_, host_->split(color));
  }

 private:
  std::shared_ptr<Call> begin(const char* what, std::int64_t bytes, const char* lane) {
    auto call = std::make_shared<Call>();
    std::string text = std::string("NCCL ") + what + (bytes > 0 ? " of " + in_gb(bytes) : "") +
                       ", group of " + std::to_string(size()) +
                       (lane != nullptr ? std::string(", lane ") + lane : "");
    if (context_.step != nullptr) text += ", step " + std::to_string(context_.step->load());
    context_.watchdog->began(member_, std::move(text), [call] { return call->done(); });
    return call;
  }

  template <class Issue>
  void issue(const char* what, Lane lane, std::int64_t bytes, Issue work) {
    const auto call = begin(what, bytes, name_of(lane));
    const cudaStream_t stream = context_.queue->stream(lane);
    nccl(work(comm_.load(), stream), what, comm_.load());
    call->event = make_event();
    cu(cudaEventRecord(call->event.get(), stream), "cudaEventRecord");
    call->queued.store(true, std::memory_order_release);
  }

  /// What NCCL has found in the background; asked by the watchdog's thread.
  std::string failure() const {
    const ncclComm_t comm = comm_.load();
    if (comm == nullptr) return {};
    ncclResult_t state = ncclSuccess;
    const ncclResult_t code = ncclCommGetAsyncError(comm, &state);
    if (code != ncclSuccess) return std::string("ncclCommGetAsyncError: ") + ncclGetErrorString(code);
    if (state == ncclSuccess || state == ncclInProgress) return {};
    const char* more = ncclGetLastError(comm);
    return std::string(ncclGetErrorString(state)) +
           (more != nullptr && *more != 0 ? std::string(": ") + more : "");
  }

  NcclContext context_;
  std::unique_ptr<Comm> host_;
  std::atomic<ncclComm_t> comm_{nullptr};
  int member_ = -1;
};

}  // namespace

std::unique_ptr<Comm> make_device_comm(const NcclContext& context, std::unique_ptr<Comm> group) {
  if (std::string_view(group->kind()) == "loopback") return group;  // pretends on the queue it was made with
  if (group->size() == 1) return make_self_comm(*context.queue);
  return std::make_unique<NcclComm>(context, std::move(group));
}

}  // namespace annulus::cuda
