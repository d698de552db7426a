// Results as markdown, a row as soon as it is known.
#pragma once
#include "cases.h"
#include "machine.h"

namespace annulus::bench {

void print_heading(const std::string& device, const std::string& command);
void print_limits(const Limits&);
void print_table_head(Kind);
void print_row(const Case&, const Timing&, const Limits&);
/// A case that is not timed, and why.
void print_refusal(const Case&, const std::string& why);

}  // namespace annulus::bench
