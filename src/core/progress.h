// How far long work has come: one line on a terminal that is written over and over.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace annulus {

/// Whether people watch: standard error is a terminal.
bool on_a_terminal();

/// The line: "tokenizing [######----]  61 %  1.22 of 2.00 GB, 41.0 MB/s, 0:19 left". `unit`: "B" for bytes
/// (shown in kB, MB or GB), otherwise a word as it is ("steps"). `all` of 0 or less: it is not known, and no
/// share is shown.
std::string progress_line(const std::string& what, std::int64_t done, std::int64_t all,
                          const std::string& unit, double seconds);

/// Writes the line to standard error, a few times a second, while `shown`; clears it when it is destroyed.
/// Every rank may call it, one should show it:
///   Progress bar("tokenizing", "B", on_a_terminal() && world.rank() == 0);
class Progress {
 public:
  Progress(std::string what, std::string unit, bool shown);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  /// Cheap; most calls write nothing.
  void at(std::int64_t done, std::int64_t all);
  /// Takes the line away, so that another may be printed; the next at() brings it back.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_, unit_;
  bool shown_;
  std::size_t width_ = 0;  // of what stands there
  Clock::time_point start_ = Clock::now(), next_ = start_;
};

}  // namespace annulus
