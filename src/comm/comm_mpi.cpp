// Groups of MPI ranks with tensors in host memory, and the program's life inside MPI.
#include <mpi.h>
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include "comm/comm.h"

namespace annulus {
namespace {

// Counts in MPI calls are ints: longer tensors go in slices of this many bytes.
constexpr std::int64_t kSlice = std::int64_t{1} << 30;

void mpi(int code, std::string_view call, std::source_location at = std::source_location::current()) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  fail(call, std::string(text, static_cast<std::size_t>(length)), at);
}

MPI_Datatype type_of(const Tensor& t) {
  switch (t.dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::i64:
      return MPI_INT64_T;
    case DType::i32:
      return MPI_INT32_T;
    default:
      fail("MPI reduction", std::string(t.name) + ": type " + name_of(t.dtype) + " cannot be summed");
  }
}

MPI_Op op_of(Reduce r) {
  return r == Reduce::sum ? MPI_SUM : MPI_MAX;
}

char* bytes_at(const Tensor& t, std::int64_t byte) {
  return static_cast<char*>(t.data) + byte;
}

class MpiComm : public Comm {
 public:
  MpiComm(MPI_Comm comm, Queue& queue, bool owned) : comm_(comm), queue_(queue), owned_(owned) {
    mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  ~MpiComm() override {
    int finalized = 0;
    if (owned_ && MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0 &&
        MPI_Comm_free(&comm_) != MPI_SUCCESS)
      std::fputs("warning: MPI_Comm_free failed\n", stderr);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* kind() const override { return "mpi"; }
  void* mpi_handle() const override { return const_cast<MPI_Comm*>(&comm_); }

  void all_reduce(Lane, const Tensor& t, Reduce reduce) override {
    need(t.contiguous(), std::string(t.name) + ": all_reduce of a strided tensor");
    const std::int64_t slice = kSlice / bytes_of(t.dtype);
    for (std::int64_t at = 0; at < t.size(); at += slice)
      mpi(MPI_Allreduce(MPI_IN_PLACE, bytes_at(t, at * bytes_of(t.dtype)),
                        static_cast<int>(std::min(slice, t.size() - at)), type_of(t), op_of(reduce), comm_),
          "MPI_Allreduce");
  }

  void all_gather(Lane lane, const Tensor& mine, const Tensor& all) override {
    need(
        mine.contiguous() && all.contiguous() && all.size() == mine.size() * size_ && all.dtype == mine.dtype,
        std::string(mine.name) + ": all_gather sizes differ");
    const Tensor place = all.span(rank_ * mine.size(), mine.size());
    if (place.data != mine.data && mine.size() > 0) queue_.copy(lane, mine.span(0, mine.size()), place);
    if (mine.bytes() <= INT_MAX) {
      mpi(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data, static_cast<int>(mine.bytes()),
                        MPI_BYTE, comm_),
          "MPI_Allgather");
      return;
    }
    for (int root = 0; root < size_; ++root)
      for (std::int64_t at = 0; at < mine.bytes(); at += kSlice)
        mpi(MPI_Bcast(bytes_at(all, root * mine.bytes() + at),
                      static_cast<int>(std::min(kSlice, mine.bytes() - at)), MPI_BYTE, root, comm_),
            "MPI_Bcast");
  }

  void reduce_scatter(Lane lane, const Tensor& all, const Tensor& mine) override {
    need(
        mine.contiguous() && all.contiguous() && all.size() == mine.size() * size_ && all.dtype == mine.dtype,
        std::string(mine.name) + ": reduce_scatter sizes differ");
    // One reduction per owner and slice, in rank order: bounded counts, and the same order of sums every
    // time.
    const std::int64_t width = bytes_of(mine.dtype), slice = kSlice / width;
    for (int root = 0; root < size_; ++root)
      for (std::int64_t at = 0; at < mine.size(); at += slice) {
        void* data = bytes_at(all, (root * mine.size() + at) * width);
        mpi(MPI_Reduce(root == rank_ ? MPI_IN_PLACE : data, root == rank_ ? data : nullptr,
                       static_cast<int>(std::min(slice, mine.size() - at)), type_of(mine), MPI_SUM, root,
                       comm_),
            "MPI_Reduce");
      }
    const Tensor place = all.span(rank_ * mine.size(), mine.size());
    if (place.data != mine.data && mine.size() > 0) queue_.copy(lane, place, mine.span(0, mine.size()));
  }

  void exchange(Lane, std::span<const Send> sends, std::span<const Receive> receives) override {
    std::vector<MPI_Request> requests;
    for (const Receive& r : receives) {
      need(r.data.contiguous(), std::string(r.data.name) + ": receive into a strided tensor");
      for (std::int64_t at = 0; at < r.data.bytes(); at += kSlice)
        mpi(MPI_Irecv(bytes_at(r.data, at), static_cast<int>(std::min(kSlice, r.data.bytes() - at)), MPI_BYTE,
                      r.from, 0, comm_, &requests.emplace_back()),
            "MPI_Irecv");
    }
    for (const Send& s : sends) {
      need(s.data.contiguous(), std::string(s.data.name) + ": send of a strided tensor");
      for (std::int64_t at = 0; at < s.data.bytes(); at += kSlice)
        mpi(MPI_Isend(bytes_at(s.data, at), static_cast<int>(std::min(kSlice, s.data.bytes() - at)), MPI_BYTE,
                      s.to, 0, comm_, &requests.emplace_back()),
            "MPI_Isend");
    }
    mpi(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  }

  void all_reduce(std::span<std::int64_t> v, Reduce reduce) override {
    mpi(MPI_Allreduce(MPI_IN_PLACE, v.data(), static_cast<int>(v.size()), MPI_INT64_T, op_of(reduce), comm_),
        "MPI_Allreduce");
  }
  void all_reduce(std::span<double> v, Reduce reduce) override {
    mpi(MPI_Allreduce(MPI_IN_PLACE, v.data(), static_cast<int>(v.size()), MPI_DOUBLE, op_of(reduce), comm_),
        "MPI_Allreduce");
  }

  std::vector<std::string> all_gather(const std::string& mine) override {
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(size_));
    const auto length = static_cast<std::int64_t>(mine.size());
    mpi(MPI_Allgather(&length, 1, MPI_INT64_T, lengths.data(), 1, MPI_INT64_T, comm_), "MPI_Allgather");
    std::vector<std::string> all(static_cast<std::size_t>(size_));
    for (int root = 0; root < size_; ++root) {
      std::string& theirs = all[static_cast<std::size_t>(root)];
      theirs = root == rank_
                   ? mine
                   : std::string(static_cast<std::size_t>(lengths[static_cast<std::size_t>(root)]), '\0');
      send_from(theirs, root);
    }
    return all;
  }
  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine) override {
    need(mine.size_bytes() <= INT_MAX, "all_gather of numbers: more than MPI takes in one call");
    std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(size_));
    const auto n = static_cast<int>(mine.size());
    mpi(MPI_Allgather(mine.data(), n, MPI_INT64_T, all.data(), n, MPI_INT64_T, comm_), "MPI_Allgather");
    return all;
  }
  void broadcast(std::string& bytes, int root) override {
    auto length = static_cast<std::int64_t>(bytes.size());
    mpi(MPI_Bcast(&length, 1, MPI_INT64_T, root, comm_), "MPI_Bcast");
    bytes.resize(static_cast<std::size_t>(length));
    send_from(bytes, root);
  }
  void barrier() override { mpi(MPI_Barrier(comm_), "MPI_Barrier"); }

  std::unique_ptr<Comm> split(int color) const override {
    MPI_Comm part = MPI_COMM_NULL;
    mpi(MPI_Comm_split(comm_, color, rank_, &part), "MPI_Comm_split");
    return std::make_unique<MpiComm>(part, queue_, true);
  }
  std::unique_ptr<Comm> split_by_node() const override {
    MPI_Comm part = MPI_COMM_NULL;
    mpi(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part), "MPI_Comm_split_type");
    return std::make_unique<MpiComm>(part, queue_, true);
  }

 private:
  void send_from(std::string& bytes, int root) {
    const auto length = static_cast<std::int64_t>(bytes.size());
    for (std::int64_t at = 0; at < length; at += kSlice)
      mpi(MPI_Bcast(bytes.data() + at, static_cast<int>(std::min(kSlice, length - at)), MPI_BYTE, root,
                    comm_),
          "MPI_Bcast");
  }
  MPI_Comm comm_;
  Queue& queue_;
  bool owned_;
  int rank_ = 0, size_ = 1;
};

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) {
  int provided = 0;
  mpi(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  MPI_Comm node = MPI_COMM_NULL;
  mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
      "MPI_Comm_split_type");
  mpi(MPI_Comm_rank(node, &local_rank_), "MPI_Comm_rank");
  mpi(MPI_Comm_size(node, &local_size_), "MPI_Comm_size");
  mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  g_rank_for_messages = rank_;
}

MpiSession::~MpiSession() {
  int finalized = 0;
  if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0 && MPI_Finalize() != MPI_SUCCESS)
    std::fputs("warning: MPI_Finalize failed\n", stderr);
}

std::unique_ptr<Comm> MpiSession::world(Queue& queue) const {
  return std::make_unique<MpiComm>(MPI_COMM_WORLD, queue, false);
}

void MpiSession::abort(Exit code) const {
  std::fflush(nullptr);
  if (MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code)) != MPI_SUCCESS)
    std::fputs("warning: MPI_Abort failed\n", stderr);
  std::_Exit(static_cast<int>(code));
}

}  // namespace annulus
