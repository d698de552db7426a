// Attention at its real length against double precision, in a sample of places.
#pragma once
#include <cstdint>
#include <string>
#include "comm/comm.h"
#include "model/model.h"
#include "train/staging.h"

namespace annulus {

/// Largest errors, each beside the largest value of what was compared.
struct SpotCheck {
  struct Error {
    double worst = 0, largest = 0;
  };
  std::int64_t queries = 0, keys = 0, seen = 0;  // seen: key rows that the queries saw, copies counted
  Error o, lse, dq;                              // of the queries
  Error dk, dv;                                  // of the keys
  double seconds = 0;
};

/// Computes again, in f64 on the host, what a rank of a ring of copies has computed: `samples` random query
/// rows of its attention (output, log-sum-exp, dQ), and dK and dV of as many random rows of its keys.
///
/// The row is the one that pretended peers (make_loopback_comm) make. The rank's queries stand where its
/// chunks stand in the row. What is visited at ring step s are the rank's own keys again, standing where the
/// member s places down the ring has its chunks: one key row lies at `ring` places, and a query weighs it
/// once for every place that it sees. The sum that returns is the rank's own as well, so a key's gradient is
/// that of all its places to the rank's queries. That holds when every member's keys travel all the way
/// round; rows in which some stop earlier are refused (usage).
///
/// Gradients take the device's outputs and log-sum-exps of all queries as given (they are what the device's
/// backward reads); these are what the check of the queries vouches for. `me`: the rank's place in the ring.
SpotCheck spot_check(Backend&, const AttentionTensors&, int me, double scale, std::int64_t samples);

/// Bytes of host memory that it takes, beside a slab of pinned memory.
std::int64_t spot_check_bytes(const AttentionTensors&);

/// One line for a person.
std::string describe(const SpotCheck&);

}  // namespace annulus
