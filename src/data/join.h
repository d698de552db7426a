#pragma once
#include <cstdint>
#include "comm/comm.h"
#include "io/token_file.h"

namespace annulus {

/// Collective. Joins consecutive texts, across ranks, into documents of at least `tokens` tokens (the last
/// may be shorter). The outcome over all ranks is that of one rank that holds all texts; a document ends up
/// where its first text is.
void join_texts(Comm& world, TokenPart&, std::int64_t tokens);

}  // namespace annulus
