#include <algorithm>
#include <cstring>
#include "comm/comm.h"

namespace annulus {

std::vector<std::int64_t> Comm::all_gather(std::span<const std::int64_t> mine) {
  std::vector<std::int64_t> all;
  for (const std::string& theirs :
       all_gather(std::string(reinterpret_cast<const char*>(mine.data()), mine.size_bytes()))) {
    need(theirs.size() == mine.size_bytes(), "all_gather of numbers: ranks gave different counts");
    const std::size_t at = all.size();
    all.resize(at + mine.size());
    if (!mine.empty()) std::memcpy(all.data() + at, theirs.data(), theirs.size());
  }
  return all;
}

void agreed(Comm& comm, std::string_view phase, const std::function<void()>& work) {
  // "code" and "sentence" of this rank; empty when all went well.
  std::string mine;
  try {
    work();
  } catch (const Error& e) {
    mine = std::to_string(static_cast<int>(e.code)) + " " + e.what();
  } catch (const std::exception& e) {
    mine = std::to_string(static_cast<int>(Exit::bug)) + " rank " + std::to_string(g_rank_for_messages) +
           ": " + std::string(phase) + ": " + e.what();
  }
  // One flag for the usual case; the sentences travel only after a failure.
  if (comm.max(mine.empty() ? 0 : 1) == 0) return;
  for (const std::string& theirs : comm.all_gather(mine)) {
    if (theirs.empty()) continue;
    const std::size_t space = theirs.find(' ');
    throw Error(static_cast<Exit>(std::stoi(theirs.substr(0, space))), theirs.substr(space + 1), true);
  }
  fail("agreed", "a rank reported a failure without a sentence");
}

}  // namespace annulus
