// A row-major (rows, columns) matrix is, to cuBLASLt, a column-major (columns, rows) one. So c = op(a) op(b)
// is computed as c' = op(b)' op(a)': our b is its first operand, our a the second, and m = N, n = M.
#include "blas/matmul.h"

#include <bit>
#include "blas/addend.h"
#include "core/check.cuh"

namespace annulus::cuda {
namespace {

constexpr std::int64_t kBiasAlign = 16;  // bytes; the epilogue reads the bias in vectors

void blas(cublasStatus_t code, std::string_view call,
          std::source_location at = std::source_location::current()) {
  if (code != CUBLAS_STATUS_SUCCESS) fail(call, cublasLtGetStatusString(code), at);
}

cudaDataType_t type_of(const Tensor& t) {
  need(t.dtype == DType::f32 || t.dtype == DType::bf16, std::string(t.name) + ": matmul takes f32 and bf16");
  return t.dtype == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
}

/// The largest power of two, up to 256, that divides the address.
std::int64_t alignment(const Tensor& t) {
  const auto address = reinterpret_cast<std::uintptr_t>(t.data);
  return address == 0 ? 256 : std::int64_t{1} << std::min(8, std::countr_zero(address));
}

template <class Handle, cublasStatus_t (*Destroy)(Handle)>
struct Described {
  Handle handle = nullptr;
  Described() = default;
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;
  ~Described() {
    if (handle != nullptr) static_cast<void>(Destroy(handle));  // frees host memory only
  }
};
using Operation = Described<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy>;
using MatrixLayout = Described<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>;
using Preference = Described<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy>;

template <class Value>
void set(Operation& operation, cublasLtMatmulDescAttributes_t what, Value value) {
  blas(cublasLtMatmulDescSetAttribute(operation.handle, what, &value, sizeof value),
       "cublasLtMatmulDescSetAttribute");
}

template <class Value>
void set(Preference& preference, cublasLtMatmulPreferenceAttributes_t what, Value value) {
  blas(cublasLtMatmulPreferenceSetAttribute(preference.handle, what, &value, sizeof value),
       "cublasLtMatmulPreferenceSetAttribute");
}

/// The column-major face of a row-major 2-D tensor.
void make_layout(MatrixLayout& layout, const Tensor& t) {
  blas(cublasLtMatrixLayoutCreate(&layout.handle, type_of(t), static_cast<std::uint64_t>(t.shape[1]),
                                  static_cast<std::uint64_t>(t.shape[0]), t.stride()),
       "cublasLtMatrixLayoutCreate");
}

struct Product {
  Operation operation;
  MatrixLayout first, second, add, out;
};

std::string sizes(std::int64_t M, std::int64_t N, std::int64_t K) {
  return "matmul (" + std::to_string(M) + ", " + std::to_string(K) + ") x (" + std::to_string(K) + ", " +
         std::to_string(N) + ")";
}

cublasLtMatmulAlgo_t choose_algorithm(cublasLtHandle_t handle, const Product& p, const Matmul& a,
                                      const Tensor& add, std::int64_t workspace, const std::string& what) {
  Preference preference;
  blas(cublasLtMatmulPreferenceCreate(&preference.handle), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(alignment(a.b)));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(alignment(a.a)));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(alignment(add)));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(alignment(a.c)));
  // A product split over K is joined in f32; joining in the output's type would round more than once.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t code =
      cublasLtMatmulAlgoGetHeuristic(handle, p.operation.handle, p.first.handle, p.second.handle,
                                     p.add.handle, p.out.handle, preference.handle, 1, &found, &count);
  if (code != CUBLAS_STATUS_SUCCESS) fail(what, cublasLtGetStatusString(code));
  need(count > 0, what + ": cuBLASLt knows no algorithm for this layout");
  blas(found.state, what);
  return found.algo;
}

}  // namespace

MatmulEngine::MatmulEngine()
    : handle_(nullptr, [](cublasLtHandle_t h) { static_cast<void>(cublasLtDestroy(h)); }) {
  cublasLtHandle_t handle = nullptr;
  blas(cublasLtCreate(&handle), "cublasLtCreate");
  handle_.reset(handle);
}

void MatmulEngine::run(const Matmul& a, Scratch scratch, cudaStream_t stream) {
  const std::int64_t M = a.c.shape[0], N = a.c.shape[1], K = a.trans_a ? a.a.shape[0] : a.a.shape[1];
  if (a.trans_a)
    a.a.expect({K, M});
  else
    a.a.expect({M, K});
  if (a.trans_b)
    a.b.expect({N, K});
  else
    a.b.expect({K, N});
  a.c.expect({M, N});
  need(a.a.dtype == a.b.dtype, "matmul: a and b differ in type");
  need(a.c.dtype == a.a.dtype || a.c.dtype == DType::f32, "matmul: c is neither of a's type nor f32");
  if (a.add) a.add.expect({M, N});
  need(!a.add || a.add.dtype == a.c.dtype, "matmul: add and c differ in type");
  if (a.bias) a.bias.expect({N});
  if (M == 0 || N == 0) return;
  if (K == 0) return launch_addend(a.add, a.bias, a.c, stream);

  // The library adds the bias itself where its type and address allow; else c starts from add + bias.
  const bool epilogue = a.bias && a.bias.dtype == a.c.dtype && alignment(a.bias) >= kBiasAlign;
  Tensor add = a.add;
  if (a.bias && !epilogue) {
    launch_addend(a.add, a.bias, a.c, stream);
    add = a.c;
  }

  Product p;
  blas(cublasLtMatmulDescCreate(&p.operation.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F),
       "cublasLtMatmulDescCreate");
  set(p.operation, CUBLASLT_MATMUL_DESC_TRANSA, a.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(p.operation, CUBLASLT_MATMUL_DESC_TRANSB, a.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (epilogue) {
    set(p.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(p.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(a.bias.data));
    set(p.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(type_of(a.bias)));
  }
  const Tensor& added = add ? add : a.c;  // with beta = 0 the addend is not read
  make_layout(p.first, a.b);
  make_layout(p.second, a.a);
  make_layout(p.add, added);
  make_layout(p.out, a.c);

  const MatmulKey key{
      M,
      N,
      K,
      a.a.stride(),
      a.b.stride(),
      added.stride(),
      a.c.stride(),
      a.trans_a + 2 * a.trans_b + 4 * epilogue + 8 * bool(add) + 16 * (added.data != a.c.data),
      static_cast<int>(a.a.dtype) * 8 + static_cast<int>(a.c.dtype),
      alignment(a.a) * 1024 + alignment(a.b),
      alignment(added) * 1024 + alignment(a.c),
      scratch.bytes,
      epilogue ? alignment(a.bias) : 0};
  const cublasLtMatmulAlgo_t& algorithm = algorithms_.get(
      key, [&] { return choose_algorithm(handle_.get(), p, a, added, scratch.bytes, sizes(M, N, K)); });
  const float alpha = static_cast<float>(a.scale), beta = add ? 1.f : 0.f;
  blas(cublasLtMatmul(handle_.get(), p.operation.handle, &alpha, a.b.data, p.first.handle, a.a.data,
                      p.second.handle, &beta, added.data, p.add.handle, a.c.data, p.out.handle, &algorithm,
                      scratch.data, static_cast<std::size_t>(scratch.bytes), stream),
       sizes(M, N, K));
}

}  // namespace annulus::cuda
