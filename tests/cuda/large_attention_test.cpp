// Attention over tensors of more than 2^31 elements: sampled rows against the definition in double.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include "core/bf16.h"
#include "ops/load_cuda.h"
#include "support/backends.h"
#include "support/judge.h"

using namespace annulus;
using namespace annulus::test;

namespace {

constexpr std::int64_t kRows = 225304, kWidth = 9728;  // 2.19e9 elements
constexpr std::int64_t kWindow = 300, kDocument = 7919;
constexpr std::int64_t kEvery = 3;   // heads of a sampled row that are judged: one of so many
constexpr double kBf16Error = 1e-2;  // of all sampled rows, in the Euclidean norm: a few roundings to bf16
constexpr std::int64_t kMemory = 40'000'000'000;
static_assert(kRows * kWidth > std::int64_t{1} << 31);

struct Form {
  const char* why;
  std::int64_t H, G, D;
  bool joined;  // q, k and v side by side in rows of kWidth, and so their gradients
  bool visits;  // three blocks, sums and gradients in f32; otherwise one block, all in bf16
};

constexpr Form kForms[] = {{"q, o and d_o of 225,304 x 9,728, in three blocks", 76, 4, 128, false, true},
                           {"q, k and v in one buffer of 225,304 x 9,728", 38, 19, 128, true, false},
                           {"the same with heads of 64", 76, 38, 64, true, false}};

/// About where the 2^31st element lies, at both ends, and where documents begin.
constexpr std::int64_t kSampled[] = {0,      299,    7918,   7919,   112651, 112652,
                                     112653, 220751, 220752, 220753, 225303};

std::int64_t first_of(std::int64_t p) {
  return std::max(p / kDocument * kDocument, p - kWindow + 1);
}
std::int64_t last_of(std::int64_t key) {  // query that sees it
  return std::min({kRows - 1, (key / kDocument + 1) * kDocument - 1, key + kWindow - 1});
}

/// Device memory that is filled with one period of normal numbers over and over, so that any row is known.
class Field {
 public:
  static constexpr std::int64_t kPeriod = 1000003;

  Field(Backend& b, DType type, std::int64_t width, std::uint64_t stream)
      : b_(b), width_(width), period_(random_values(DType::bf16, stream, type == DType::bf16 ? kPeriod : 0)) {
    tensor_ = allocate(b, type, {kRows, width});
    if (type != DType::bf16) return;
    const Tensor all = tensor_.view({tensor_.size()});
    bf16* host = static_cast<bf16*>(b.pinned().allocate(kPeriod * bytes_of(type), "numbers"));
    std::transform(period_.begin(), period_.end(), host, [](float x) { return narrow(x); });
    const std::int64_t once = std::min(kPeriod, all.size());
    b.queue().copy(Lane::compute, make_tensor("numbers", host, type, {once}), all.span(0, once));
    for (std::int64_t done = once, more = 0; done < all.size(); done += more) {
      more = std::min(done, all.size() - done);
      b.queue().copy(Lane::compute, all.span(0, more), all.span(done, more));
    }
    b.queue().sync(b.queue().mark(Lane::compute));
    b.pinned().release(host);
  }
  ~Field() { b_.memory().release(tensor_.data); }
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;

  const Tensor& tensor() const { return tensor_; }
  /// (kRows, heads, D) from column `at` on.
  Tensor heads(const char* name, std::int64_t at, std::int64_t heads, std::int64_t D) const {
    Tensor t = make_tensor(name, static_cast<char*>(tensor_.data) + at * bytes_of(tensor_.dtype),
                           tensor_.dtype, {kRows, heads, D}, tensor_.place);
    t.row_stride = width_;
    return t;
  }
  /// The number that was put at a row and column.
  double number(std::int64_t row, std::int64_t column) const {
    return double{period_[static_cast<std::size_t>((row * width_ + column) % kPeriod)]};
  }

  static Tensor allocate(Backend& b, DType type, Shape shape) {
    Tensor t = make_tensor("field", nullptr, type, shape, b.memory().place());
    t.data = b.memory().allocate(t.bytes(), "a large tensor of a test");
    return t;
  }

 private:
  Backend& b_;
  std::int64_t width_;
  Floats period_;
  Tensor tensor_;
};

Floats download(Backend& b, const Tensor& t) {
  void* host = b.pinned().allocate(t.bytes(), t.name);
  Tensor here = t;
  here.data = host, here.place = Place::host, here.row_stride = 0;
  b.queue().copy(Lane::compute, t, here);
  b.queue().sync(b.queue().mark(Lane::compute));
  Floats values(static_cast<std::size_t>(t.size()));
  if (t.dtype == DType::f32)
    std::memcpy(values.data(), host, static_cast<std::size_t>(t.bytes()));
  else
    std::transform(here.as<bf16>(), here.as<bf16>() + t.size(), values.begin(),
                   [](bf16 x) { return widen(x); });
  b.pinned().release(host);
  return values;
}

/// One form on one backend: all its tensors, and what they are judged by.
class Scene {
 public:
  Scene(Backend& b, const Form& l)
      : b_(b),
        l_(l),
        width_(l.joined ? kWidth : l.H * l.D),
        k_at_(l.joined ? l.H * l.D : 0),
        v_at_(l.joined ? (l.H + l.G) * l.D : 0),
        q_(b, DType::bf16, width_, 1),
        k_(b, DType::bf16, l.joined ? 1 : l.G * l.D, 2),
        v_(b, DType::bf16, l.joined ? 1 : l.G * l.D, 3),
        o_(b, DType::bf16, width_, 4),
        d_o_(b, DType::bf16, width_, 5),
        dq_(b, gradient(), width_, 6),
        dk_(b, gradient(), l.joined ? 1 : l.G * l.D, 7),
        dv_(b, gradient(), l.joined ? 1 : l.G * l.D, 8),
        acc_(b, DType::f32, l.visits ? width_ : 1, 9),
        lse_(Field::allocate(b, DType::f32, {l.H, kRows})),
        delta_(Field::allocate(b, DType::f32, {l.H, kRows})),
        first_(Field::allocate(b, DType::i64, {kRows})) {
    auto* host = static_cast<std::int64_t*>(b.pinned().allocate(first_.bytes(), "first"));
    for (std::int64_t p = 0; p < kRows; ++p) host[p] = first_of(p);
    b.queue().copy(Lane::compute, make_tensor("first", host, DType::i64, {kRows}), first_);
    b.queue().sync(b.queue().mark(Lane::compute));
    b.pinned().release(host);
  }
  ~Scene() {
    for (const Tensor& t : {lse_, delta_, first_, workspace_}) b_.memory().release(t.data);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  void run() {
    AttentionFwd f;
    f.q = q_.heads("q", 0, l_.H, l_.D);
    f.k = (l_.joined ? q_ : k_).heads("k", k_at_, l_.G, l_.D);
    f.v = (l_.joined ? q_ : v_).heads("v", v_at_, l_.G, l_.D);
    f.first = first_;
    f.blocks = blocks();
    if (l_.visits) f.acc = acc_.tensor().view({kRows, l_.H, l_.D});
    f.lse = lse_;
    f.o = o_.heads("o", 0, l_.H, l_.D);
    f.begins = f.ends = true;
    f.scale = scale();
    f.workspace = workspace(b_.ops().attention_fwd_bytes(f));
    b_.ops().attention_fwd(Lane::compute, f);

    AttentionBwd a;
    a.q = f.q, a.k = f.k, a.v = f.v, a.o = f.o, a.first = first_, a.blocks = f.blocks, a.scale = f.scale;
    a.d_o = d_o_.heads("d_o", 0, l_.H, l_.D);
    a.lse = lse_, a.delta = delta_;
    a.dq = dq_.heads("dq", 0, l_.H, l_.D);
    a.dk = (l_.joined ? dq_ : dk_).heads("dk", k_at_, l_.G, l_.D);
    a.dv = (l_.joined ? dq_ : dv_).heads("dv", v_at_, l_.G, l_.D);
    if (l_.visits)
      for (const Tensor& t : {a.dq, a.dk, a.dv}) b_.queue().zero(Lane::compute, t);
    b_.ops().attention_delta(Lane::compute, {.o = a.o, .d_o = a.d_o, .delta = delta_});
    a.workspace = workspace(b_.ops().attention_bwd_bytes(a));
    b_.ops().attention_bwd(Lane::compute, a);
    b_.queue().sync(b_.queue().mark(Lane::compute));
    call_ = a;
  }

  /// Relative errors by tensor.
  std::map<std::string, double> errors() {
    all_lse_ = download(b_, lse_), all_delta_ = download(b_, delta_);
    for (const std::int64_t row : kSampled) {
      judge_query(row);
      judge_key(row);
    }
    std::map<std::string, double> relative;
    for (const auto& [name, sums] : sums_) relative[name] = std::sqrt(sums.difference / sums.size);
    return relative;
  }

 private:
  struct Sums {
    double difference = 0, size = 0;
  };

  DType gradient() const { return l_.visits ? DType::f32 : DType::bf16; }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(l_.D)); }
  std::int64_t group() const { return l_.H / l_.G; }

  std::span<const AttentionBlock> blocks() {
    constexpr std::int64_t half = 112652, rest = kRows - half;
    if (l_.visits)
      blocks_ = {{0, half, 0, 0, half, 0, Cover::partial},
                 {half, rest, half, 0, half, 0, Cover::partial},
                 {half, rest, half, half, rest, half, Cover::partial}};
    else
      blocks_ = {{0, kRows, 0, 0, kRows, 0, Cover::partial}};
    return blocks_;
  }
  Tensor workspace(std::int64_t bytes) {
    b_.queue().sync(b_.queue().mark(Lane::compute));
    if (workspace_) b_.memory().release(workspace_.data);
    return workspace_ = Field::allocate(b_, DType::u8, {std::max<std::int64_t>(bytes, 1)});
  }

  double q(std::int64_t row, std::int64_t h, std::int64_t d) const { return q_.number(row, h * l_.D + d); }
  double d_o(std::int64_t row, std::int64_t h, std::int64_t d) const {
    return d_o_.number(row, h * l_.D + d);
  }
  double k(std::int64_t row, std::int64_t g, std::int64_t d) const {
    return (l_.joined ? q_ : k_).number(row, k_at_ + g * l_.D + d);
  }
  double v(std::int64_t row, std::int64_t g, std::int64_t d) const {
    return (l_.joined ? q_ : v_).number(row, v_at_ + g * l_.D + d);
  }
  double score(std::int64_t row, std::int64_t key, std::int64_t h) const {
    double sum = 0;
    for (std::int64_t d = 0; d < l_.D; ++d) sum += q(row, h, d) * k(key, h / group(), d);
    return sum * scale();
  }
  double stat(const Floats& all, std::int64_t h, std::int64_t row) const {
    return double{all[static_cast<std::size_t>(h * kRows + row)]};
  }
  /// Gradient of the score before scaling; `p` is the pair's probability.
  double d_score(std::int64_t row, std::int64_t key, std::int64_t h, double p) const {
    double dp = 0;
    for (std::int64_t d = 0; d < l_.D; ++d) dp += d_o(row, h, d) * v(key, h / group(), d);
    return p * (dp - stat(all_delta_, h, row)) * scale();
  }

  void add(const char* name, const Floats& got, std::int64_t at, const Doubles& exact) {
    Sums& s = sums_[name];
    for (std::size_t i = 0; i < exact.size(); ++i) {
      s.difference += std::pow(double{got[static_cast<std::size_t>(at) + i]} - exact[i], 2);
      s.size += exact[i] * exact[i];
    }
  }

  /// o, lse and delta by the definition; dq with the lse and delta that the backward was given.
  void judge_query(std::int64_t row) {
    const Floats got_o = download(b_, call_.o.rows(row, 1)), got_dq = download(b_, call_.dq.rows(row, 1));
    const auto D = static_cast<std::size_t>(l_.D);
    for (std::int64_t h = row % kEvery; h < l_.H; h += kEvery) {
      Doubles o(D), dq(D);
      double total = 0;
      for (std::int64_t key = first_of(row); key <= row; ++key) {
        const double s = score(row, key, h), weight = std::exp(s);
        total += weight;
        const double ds = d_score(row, key, h, std::exp(s - stat(all_lse_, h, row)));
        for (std::size_t d = 0; d < D; ++d) {
          o[d] += weight * v(key, h / group(), static_cast<std::int64_t>(d));
          dq[d] += ds * k(key, h / group(), static_cast<std::int64_t>(d));
        }
      }
      double delta = 0;
      for (std::size_t d = 0; d < D; ++d)
        delta += (o[d] /= total) * d_o(row, h, static_cast<std::int64_t>(d));
      add("o", got_o, h * l_.D, o);
      add("dq", got_dq, h * l_.D, dq);
      add("lse", all_lse_, h * kRows + row, {std::log(total)});
      add("delta", all_delta_, h * kRows + row, {delta});
    }
  }

  void judge_key(std::int64_t key) {
    const Floats got_dk = download(b_, call_.dk.rows(key, 1)), got_dv = download(b_, call_.dv.rows(key, 1));
    const auto D = static_cast<std::size_t>(l_.D);
    for (std::int64_t g = key % kEvery; g < l_.G; g += kEvery) {
      Doubles dk(D), dv(D);
      for (std::int64_t row = key; row <= last_of(key); ++row)
        for (std::int64_t h = g * group(); h < (g + 1) * group(); ++h) {
          const double p = std::exp(score(row, key, h) - stat(all_lse_, h, row));
          const double ds = d_score(row, key, h, p);
          for (std::size_t d = 0; d < D; ++d) {
            dk[d] += ds * q(row, h, static_cast<std::int64_t>(d));
            dv[d] += p * d_o(row, h, static_cast<std::int64_t>(d));
          }
        }
      add("dk", got_dk, g * l_.D, dk);
      add("dv", got_dv, g * l_.D, dv);
    }
  }

  Backend& b_;
  Form l_;
  std::int64_t width_, k_at_, v_at_;
  Field q_, k_, v_, o_, d_o_, dq_, dk_, dv_, acc_;
  Tensor lse_, delta_, first_, workspace_{};
  std::vector<AttentionBlock> blocks_;
  AttentionBwd call_;
  Floats all_lse_, all_delta_;
  std::map<std::string, Sums> sums_;
};

boost::test_tools::assertion_result needs_large_gpu(boost::unit_test::test_unit_id id) {
  boost::test_tools::assertion_result answer = needs_gpu(id);
  if (!answer) return answer;
  if (test::cuda()->device_free_bytes() >= kMemory) return true;
  answer = false;
  answer.message() << "less than " << kMemory / 1'000'000'000 << " GB are free on the GPU";
  return answer;
}

void judge(Backend& backend, const char* engine) {
  for (const Form& l : kForms) {
    Scene scene(backend, l);
    scene.run();
    for (const auto& [name, error] : scene.errors()) {
      BOOST_TEST_MESSAGE(engine << ", " << l.why << ", " << name << ": " << error);
      BOOST_TEST(error <= kBf16Error, engine << ", " << l.why << ": " << name << " errs by " << error);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda)

BOOST_AUTO_TEST_CASE(attention_beyond_31_bit_offsets,
                     *boost::unit_test::label("slow") * boost::unit_test::precondition(needs_large_gpu)) {
  judge(*test::cuda(), "the fastest engine");
}

BOOST_AUTO_TEST_CASE(portable_attention_beyond_31_bit_offsets,
                     *boost::unit_test::label("slow") * boost::unit_test::precondition(needs_large_gpu)) {
  CudaOptions options;
  options.share = true;
  options.attention = AttentionKernel::own;
  const std::unique_ptr<Backend> own = load_cuda_backend(options);
  judge(*own, "our portable engine");
}

BOOST_AUTO_TEST_SUITE_END()
