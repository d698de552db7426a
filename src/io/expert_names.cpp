#include "io/expert_names.h"
#include <algorithm>
#include <charconv>
#include <map>
#include "io/elements.h"
#include "io/safetensors.h"

namespace annulus {
namespace {

constexpr std::string_view kExperts = ".mlp.experts.";
constexpr const char* kParts[] = {"gate_proj", "up_proj", "down_proj"};
constexpr const char *kGateUp = "gate_up_proj", *kDown = "down_proj";

/// A name of a single expert's tensor, taken apart; `expert` is -1 when it is none.
struct ExpertName {
  std::string prefix;  // up to "experts."
  std::int64_t expert = -1;
  int part = 0;  // of kParts
};

ExpertName parse(const std::string& name) {
  const std::size_t found = name.rfind(kExperts);
  if (found == std::string::npos) return {};
  const std::size_t begin = found + kExperts.size(), dot = name.find('.', begin);
  if (dot == std::string::npos) return {};
  std::int64_t expert = -1;
  const auto got = std::from_chars(name.data() + begin, name.data() + dot, expert);
  if (got.ec != std::errc() || got.ptr != name.data() + dot || expert < 0) return {};
  for (int p = 0; p < 3; ++p)
    if (name.substr(dot + 1) == std::string(kParts[p]) + ".weight") return {name.substr(0, begin), expert, p};
  return {};
}

class Stacks : public WeightSource {
 public:
  explicit Stacks(std::unique_ptr<WeightSource> source) : source_(std::move(source)) {
    std::map<std::string, std::map<std::pair<std::int64_t, int>, const StoredTensor*>> found;  // by prefix
    for (const StoredTensor& t : source_->tensors()) {
      const ExpertName n = parse(t.name);
      if (n.expert < 0)
        tensors_.push_back(t);
      else
        found[n.prefix][{n.expert, n.part}] = &t;
    }
    for (const auto& [prefix, experts] : found) add_stacks(prefix, experts);
    std::sort(tensors_.begin(), tensors_.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  }

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const std::string& config_json() const override { return source_->config_json(); }
  bool has(const std::string& name) const override { return stacks_.contains(name) || source_->has(name); }

  void read(const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) override {
    const auto found = stacks_.find(name);
    if (found == stacks_.end()) return source_->read(name, from, count, to);
    const Stack& s = found->second;
    need(from >= 0 && count >= 0 && from <= s.part * static_cast<std::int64_t>(s.names.size()) - count,
         "elements beyond the end of " + name);
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t at = from + done, inside = at % s.part, n = std::min(count - done, s.part - inside);
      source_->read(s.names[static_cast<std::size_t>(at / s.part)], inside, n, to.span(done, n));
      done += n;
    }
  }

 private:
  /// Tensors of `part` elements each, one after the other.
  struct Stack {
    std::vector<std::string> names;
    std::int64_t part = 0;
  };
  using Experts = std::map<std::pair<std::int64_t, int>, const StoredTensor*>;

  void add_stacks(const std::string& prefix, const Experts& experts) {
    const std::int64_t E = experts.rbegin()->first.first + 1;
    Stack gate_up, down;
    const StoredTensor &gate = part(prefix, experts, 0, 0), &last = part(prefix, experts, 0, 2);
    if (gate.shape.size() != 2 || last.shape.size() != 2)
      input_error("tensors " + shown(prefix) +
                  "... of single experts are not matrices; the model needs them so");
    for (std::int64_t e = 0; e < E; ++e)
      for (int p = 0; p < 3; ++p) {
        const StoredTensor &t = part(prefix, experts, e, p), &like = p == 2 ? last : gate;
        if (t.shape != like.shape || t.dtype != gate.dtype)
          input_error("tensor " + shown(t.name) + " has another shape or type than " + shown(like.name) +
                      "; a layer's experts are alike: copy the files again");
        (p == 2 ? down : gate_up).names.push_back(t.name);
      }
    gate_up.part = shape_size(gate.shape);
    down.part = shape_size(last.shape);
    for (const auto& [name, stack] : {std::pair{kGateUp, &gate_up}, std::pair{kDown, &down}}) {
      if (source_->has(prefix + name))
        input_error("tensor " + shown(prefix + name) + " is there, and " + shown(gate.name) +
                    " as well; a layer's experts are given once: remove one of the two");
      stacks_[prefix + name] = *stack;
    }
    tensors_.push_back({prefix + kGateUp, {E, 2 * gate.shape[0], gate.shape[1]}, gate.dtype});
    tensors_.push_back({prefix + kDown, {E, last.shape[0], last.shape[1]}, gate.dtype});
  }

  static const StoredTensor& part(const std::string& prefix, const Experts& experts, std::int64_t expert,
                                  int part) {
    const auto found = experts.find({expert, part});
    if (found == experts.end())
      input_error("tensor " + shown(prefix) + std::to_string(expert) + "." + kParts[part] +
                  ".weight is missing, and others of the layer's experts are there; copy the files again");
    return *found->second;
  }

  std::unique_ptr<WeightSource> source_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, Stack> stacks_;
};

}  // namespace

std::unique_ptr<WeightSource> stack_experts(std::unique_ptr<WeightSource> source) {
  const std::vector<StoredTensor>& all = source->tensors();
  const bool single =
      std::any_of(all.begin(), all.end(), [](const StoredTensor& t) { return parse(t.name).expert >= 0; });
  return single ? std::make_unique<Stacks>(std::move(source)) : std::move(source);
}

std::vector<SplitTensor> split_experts(const std::vector<StoredTensor>& tensors) {
  std::vector<SplitTensor> out;
  for (const StoredTensor& t : tensors) {
    const std::size_t begin = t.name.rfind(kExperts);
    const std::string prefix = begin == std::string::npos ? "" : t.name.substr(0, begin + kExperts.size());
    const bool gate_up = t.name == prefix + kGateUp, stack = gate_up || t.name == prefix + kDown;
    if (prefix.empty() || !stack || t.shape.size() != 3 || (gate_up && t.shape[1] % 2 != 0)) {
      out.push_back({t, t.name, 0});
      continue;
    }
    const std::int64_t rows = gate_up ? t.shape[1] / 2 : t.shape[1];
    std::int64_t at = 0;
    for (std::int64_t e = 0; e < t.shape[0]; ++e)
      for (const char* part : kParts) {
        if ((part == kParts[2]) == gate_up) continue;
        const std::string name = prefix + std::to_string(e) + "." + part + ".weight";
        out.push_back({{name, {rows, t.shape[2]}, t.dtype}, t.name, at});
        at += rows * t.shape[2];
      }
  }
  return out;
}

}  // namespace annulus
