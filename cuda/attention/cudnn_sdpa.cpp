#include "attention/cudnn_sdpa.h"

#include <cudnn_frontend.h>
#include <bit>
#include <unordered_map>
#include "core/check.cuh"
#include "core/libraries.h"
#include "core/lru.h"

namespace annulus::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;

constexpr std::size_t kGraphs = 64;

enum Uid : std::int64_t { kQ = 1, kK, kV, kO, kLse, kDo, kDq, kDk, kDv };

using Key = std::array<std::int64_t, 16>;

Key key_of(const SdpaShape& s) {
  return {s.Sq, s.Sk, s.H, s.G, s.D,   s.causal, s.backward, std::bit_cast<std::int64_t>(s.scale),
          s.q,  s.k,  s.v, s.o, s.d_o, s.dq,     s.dk,       s.dv};
}

std::string text(const SdpaShape& s) {
  return std::string("cuDNN attention ") + (s.backward ? "backward" : "forward") +
         (s.causal ? ", causal" : "") + ", " + std::to_string(s.Sq) + " queries, " + std::to_string(s.Sk) +
         " keys, H " + std::to_string(s.H) + ", G " + std::to_string(s.G) + ", D " + std::to_string(s.D);
}

void dnn(cudnnStatus_t code, std::string_view call,
         std::source_location at = std::source_location::current()) {
  if (code != CUDNN_STATUS_SUCCESS) fail(call, cudnnGetErrorString(code), at);
}

void dnn(fe::error_t error, const SdpaShape& shape,
         std::source_location at = std::source_location::current()) {
  if (error.is_bad()) fail(text(shape), error.get_message(), at);
}

/// (1, heads, rows, D) over memory that lies (rows, heads, D).
Tensor_attributes& place(Tensor_attributes& t, Uid uid, std::int64_t rows, std::int64_t heads, std::int64_t D,
                         std::int64_t stride) {
  return t.set_uid(uid).set_dim({1, heads, rows, D}).set_stride({rows * stride, D, stride, 1});
}

std::shared_ptr<Tensor_attributes> input(Graph& graph, const char* name, Uid uid, std::int64_t rows,
                                         std::int64_t heads, std::int64_t D, std::int64_t stride) {
  Tensor_attributes t;
  return graph.tensor(place(t.set_name(name), uid, rows, heads, D, stride));
}

void set_lse(Tensor_attributes& t, const SdpaShape& s) {
  t.set_uid(kLse)
      .set_dim({1, s.H, s.Sq, 1})
      .set_stride({s.H * s.Sq, s.Sq, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

template <class Attributes>
void set_visible(Attributes& attributes, const SdpaShape& s) {
  attributes.set_attn_scale(static_cast<float>(s.scale));
  if (s.causal)
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
}

struct Plan {
  std::shared_ptr<Graph> graph;
  std::int64_t workspace = 0;
};

Plan build(cudnnHandle_t handle, const SdpaShape& s) {
  auto graph = std::make_shared<Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto q = input(*graph, "q", kQ, s.Sq, s.H, s.D, s.q);
  const auto k = input(*graph, "k", kK, s.Sk, s.G, s.D, s.k);
  const auto v = input(*graph, "v", kV, s.Sk, s.G, s.D, s.v);
  if (!s.backward) {
    fe::graph::SDPA_attributes attributes;
    attributes.set_name("attention").set_generate_stats(true);
    set_visible(attributes, s);
    const auto [o, lse] = graph->sdpa(q, k, v, attributes);
    place(o->set_output(true), kO, s.Sq, s.H, s.D, s.o);
    set_lse(lse->set_output(true), s);
  } else {
    const auto o = input(*graph, "o", kO, s.Sq, s.H, s.D, s.o);
    const auto d_o = input(*graph, "d_o", kDo, s.Sq, s.H, s.D, s.d_o);
    Tensor_attributes stats;
    set_lse(stats.set_name("lse"), s);
    const auto lse = graph->tensor(stats);
    fe::graph::SDPA_backward_attributes attributes;
    attributes.set_name("attention_backward");
    set_visible(attributes, s);
    const auto [dq, dk, dv] = graph->sdpa_backward(q, k, v, o, d_o, lse, attributes);
    place(dq->set_output(true), kDq, s.Sq, s.H, s.D, s.dq);
    place(dk->set_output(true), kDk, s.Sk, s.G, s.D, s.dk);
    place(dv->set_output(true), kDv, s.Sk, s.G, s.D, s.dv);
  }
  dnn(graph->build(handle, {fe::HeurMode_t::A}), s);
  Plan plan{graph, 0};
  dnn(graph->get_workspace_size(plan.workspace), s);
  return plan;
}

}  // namespace

struct CudnnSdpa::State {
  cudnnHandle_t handle = nullptr;
  Lru<Key, Plan> plans{kGraphs};
  bool checked = false;

  State() { dnn(cudnnCreate(&handle), "cudnnCreate"); }
  ~State() {
    if (cudnnDestroy(handle) != CUDNN_STATUS_SUCCESS)
      std::fputs("warning: cuDNN's handle was not destroyed\n", stderr);
  }

  Plan& plan(const SdpaShape& shape) {
    Plan& built = plans.get(key_of(shape), [&] { return build(handle, shape); });
    if (!checked) {  // the first graph has loaded all parts of cuDNN that there are
      need_one_folder("libcudnn");
      checked = true;
    }
    return built;
  }
};

CudnnSdpa::CudnnSdpa() : state_(std::make_unique<State>()) {}
CudnnSdpa::~CudnnSdpa() = default;

std::int64_t CudnnSdpa::workspace_bytes(const SdpaShape& shape) {
  return state_->plan(shape).workspace;
}

void CudnnSdpa::run(const SdpaShape& shape, const SdpaData& data, void* workspace,
                    std::int64_t workspace_bytes, cudaStream_t stream) {
  Plan& plan = state_->plan(shape);
  need(plan.workspace <= workspace_bytes, text(shape) + ": needs a workspace of " +
                                              std::to_string(plan.workspace) + " bytes and got " +
                                              std::to_string(workspace_bytes));
  std::unordered_map<std::int64_t, void*> pack{
      {kQ, data.q}, {kK, data.k}, {kV, data.v}, {kO, data.o}, {kLse, data.lse}};
  if (shape.backward) pack.insert({{kDo, data.d_o}, {kDq, data.dq}, {kDk, data.dk}, {kDv, data.dv}});
  dnn(cudnnSetStream(state_->handle, stream), "cudnnSetStream");
  dnn(plan.graph->execute(state_->handle, pack, workspace), shape);
}

}  // namespace annulus::cuda
