// A job on paper: whether it fits, what a step takes, and which levers would make it fit.
#pragma once
#include <optional>
#include <string>
#include <vector>
#include "train/forecast.h"
#include "train/memory_plan.h"

namespace annulus {

struct PlanOptions {
  int ranks = 1, rank = 0;
  int ranks_per_node = 0;     // 0: as the rates say; without rates all are on one node
  double bandwidth_gbs = 0;   // of every link; 0: as the rates say
  double network_gbs = 0;     // between nodes; 0: as bandwidth_gbs or the rates say
  double host_gb = 0;         // memory of a node; 0: no limit
  std::int64_t document = 0;  // tokens of each document of the row; 0: one document
};

/// The device that a plan is for.
struct PlanDevice {
  Place place = Place::device;
  const Ops* sizes = nullptr;    // whose attention scratch counts; null: by the rates
  const Rates* rates = nullptr;  // null: no times
};

struct Plan {
  EngineSpec spec;  // as fit_memory would leave it
  Node node;        // of the rank
  Links links;
  MemoryBudget budget;
  bool fits = false;
  Forecast forecast;  // also of a job that does not fit
};

/// Where rank `rank` would stand, with full nodes.
Node pretended_node(int rank, int ranks, int ranks_per_node);
/// Links of a pretended job: given rates before those of the file.
Links pretended_links(const PlanOptions&, const Rates*);

/// Usage error when the layout does not divide.
Plan make_plan(const RunConfig&, const ModelConfig&, const PlanDevice&, const PlanOptions&);

/// The first combination of levers, in the order of src/README.md, with which a job that does not fit would
/// ("key=value"); more ranks are the last. Empty: nothing helps.
std::vector<std::string> levers_that_fit(const RunConfig&, const ModelConfig&, const PlanDevice&,
                                         const PlanOptions&);

}  // namespace annulus
