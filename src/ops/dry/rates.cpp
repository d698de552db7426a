#include "ops/dry/rates.h"
#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include "core/check.h"

namespace annulus {
namespace {

constexpr const char* kRequired[] = {
    "peak_tflops",              // the data sheet's dense bf16 rate, for MFU
    "device_gb",                // memory of the device
    "start_gb",                 // what context and libraries take of it before anything is allocated
    "later_gb",                 // what they have taken besides once a step has run
    "ranks_per_node",           // devices of a node
    "copy_gbs",                 // a copy on the device, bytes read and written
    "pinned_gbs",               // a copy between device and pinned host memory
    "pinned_both_gbs",          // the same while another goes the other way
    "link_gbs",                 // what a rank sends to ranks of its node
    "network_gbs",              // what a rank sends to other nodes
    "latency_us",               // of a transfer
    "launch_us",                // of the host, a call
    "scratch.attention_bwd.q",  // bytes that attention's backward needs besides its outputs: an element of q,
    "scratch.attention_bwd.k",  // of k repeated for every query head,
    "scratch.attention_bwd.row",  // and a row of a head
    "tflops.matmul",
    "tflops.attention_fwd.full",
    "tflops.attention_fwd.causal",
    "tflops.attention_fwd.partial",
    "tflops.attention_bwd.full",
    "tflops.attention_bwd.causal",
    "tflops.attention_bwd.partial"};

bool read_number(const std::string& word, double& value) {
  std::size_t used = 0;
  try {
    value = std::stod(word, &used);
  } catch (const std::exception&) {
    return false;
  }
  return used == word.size() && std::isfinite(value) && value >= 0;
}

}  // namespace

Rates Rates::parse(const std::string& text, const std::string& where) {
  Rates rates;
  std::istringstream lines(text);
  std::int64_t n = 0;
  for (std::string line; std::getline(lines, line);) {
    ++n;
    line.erase(std::min(line.find('#'), line.size()));
    std::istringstream words(line);
    std::vector<std::string> found;
    for (std::string word; words >> word;) found.push_back(word);
    if (found.empty()) continue;
    const auto wrong = [&](const std::string& why) {
      input_error(where + ", line " + std::to_string(n) + ": " + why +
                  "; a line is `key value` or `key size value`");
    };
    if (found[0] == "device") {
      for (std::size_t i = 1; i < found.size(); ++i) rates.device_ += (i > 1 ? " " : "") + found[i];
      continue;
    }
    double size = 0, value = 0;
    if (found.size() < 2 || found.size() > 3) wrong(std::to_string(found.size()) + " words");
    if (!read_number(found.back(), value)) wrong("\"" + found.back() + "\" is not a number from 0 on");
    if (found.size() == 3 && (!read_number(found[1], size) || size <= 0))
      wrong("\"" + found[1] + "\" is not a size");
    const bool speed =
        found[0].starts_with("tflops.") || found[0].starts_with("of_copy.") || found[0].ends_with("_gbs");
    if (speed && value <= 0) wrong(found[0] + " is not above 0");
    std::map<double, double>& by_size = rates.values_[found[0]];
    if (!by_size.emplace(size, value).second) wrong(found[0] + " is given twice");
    if (by_size.size() > 1 && by_size.begin()->first == 0)
      wrong(found[0] + " is given with and without a size");
  }
  for (const char* key : kRequired)
    if (!rates.values_.contains(key))
      input_error(where + ": " + key + " is missing; take a file that `make bench` wrote");
  if (rates.device_.empty()) input_error(where + ": the line `device NAME` is missing");
  return rates;
}

Rates Rates::read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) input_error("cannot read the rates file " + path + "; give one by --rates FILE");
  std::ostringstream text;
  text << in.rdbuf();
  return parse(text.str(), path);
}

double Rates::number(const std::string& key) const {
  const auto found = values_.find(key);
  need(found != values_.end(), "rates: no key " + key);
  return found->second.begin()->second;
}

double Rates::at(const std::string& key, double size, double missing) const {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    unknown_.insert(key);
    return missing;
  }
  const std::map<double, double>& by_size = found->second;
  const auto above = by_size.lower_bound(size);
  if (above == by_size.end()) return by_size.rbegin()->second;
  if (above == by_size.begin()) return above->second;
  const auto below = std::prev(above);
  const double part = std::log(size / below->first) / std::log(above->first / below->first);
  return below->second + part * (above->second - below->second);
}

double Rates::seconds(const Cost& c) const {
  const double copy = number("copy_gbs") * 1e9;
  if (c.flops == 0) return c.bytes == 0 ? 0 : c.bytes / (copy * at("of_copy." + c.rate, c.size, 1));
  return std::max(c.flops / (at("tflops." + c.rate, c.size, number("tflops.matmul")) * 1e12), c.bytes / copy);
}

}  // namespace annulus
