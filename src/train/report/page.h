// One self-contained HTML page of runs: nothing is fetched, everything can be read without script.
#pragma once
#include <string>
#include <vector>
#include "train/report/history.h"

namespace annulus {

inline constexpr std::size_t kReportRuns = 8;  // colours that can be told apart

/// Points of a curve, so that the page stays small whatever the number of steps and runs.
std::size_t report_points(std::size_t runs);

/// The page. `written`: when, in words.
std::string report_page(const std::vector<History>&, const std::string& written);

extern const char* const kReportStyle;   // style.cpp
extern const char* const kReportScript;  // style.cpp

}  // namespace annulus
