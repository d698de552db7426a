// Which charts a page has: what is in the runs' metrics decides.
#pragma once
#include <vector>
#include "train/report/chart.h"
#include "train/report/history.h"

namespace annulus {

std::vector<Chart> charts_of(const std::vector<History>&);

}  // namespace annulus
