// SwiGLU: silu(g) * u, a chunk of a row at a time in float, so that outputs may be inputs.
#include <algorithm>
#include "ops/cpu/exp.h"
#include "ops/cpu/loops.h"
#include "ops/cpu/reference.h"

namespace annulus::ref {
namespace {

constexpr std::int64_t kChunk = 256;

/// 1 / (1 + e^-g) without overflow.
inline float sigmoid(float g) {
  const float e = exp_fast(g < 0.f ? g : -g);
  return (g < 0.f ? e : 1.f) / (1.f + e);
}

}  // namespace

void swiglu_fwd(const SwigluFwd& a) {
  const std::int64_t N = a.h.shape[0], F = a.h.shape[1];
  by_type(a.gu.dtype, [&]<class T>(T) {
    float g[kChunk], u[kChunk];
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t f = 0; f < F; f += kChunk) {
        const std::int64_t count = std::min(kChunk, F - f);
        const T* gu = a.gu.as<T>() + n * 2 * F + f;
        load(gu, count, g);
        load(gu + F, count, u);
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) g[i] = g[i] * sigmoid(g[i]) * u[i];
        save(g, count, a.h.as<T>() + n * F + f);
      }
  });
}

void swiglu_bwd(const SwigluBwd& a) {
  const std::int64_t N = a.dh.shape[0], F = a.dh.shape[1];
  by_type(a.gu.dtype, [&]<class T>(T) {
    float g[kChunk], u[kChunk], dh[kChunk], h[kChunk];
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t f = 0; f < F; f += kChunk) {
        const std::int64_t count = std::min(kChunk, F - f);
        const T* gu = a.gu.as<T>() + n * 2 * F + f;
        load(gu, count, g);
        load(gu + F, count, u);
        load(a.dh.as<T>() + n * F + f, count, dh);
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) {
          const float s = sigmoid(g[i]), silu = g[i] * s;
          const float slope = s * (1.f + g[i] * (1.f - s));  // of silu
          h[i] = silu * u[i];
          g[i] = dh[i] * u[i] * slope;
          u[i] = dh[i] * silu;
        }
        T* dgu = a.dgu.as<T>() + n * 2 * F + f;
        save(g, count, dgu);
        save(u, count, dgu + F);
        if (a.h) save(h, count, a.h.as<T>() + n * F + f);
      }
  });
}

void expert_swiglu_bwd(const ExpertSwigluBwd& a) {
  const std::int64_t P = a.dh.shape[0], F = a.dh.shape[1];
  by_type(a.gu.dtype, [&]<class T>(T) {
    float g[kChunk], u[kChunk], dh[kChunk], h[kChunk];
    for (std::int64_t p = 0; p < P; ++p) {
      const float share = a.share.as<float>()[p];
      double along = 0.0;  // of dh and the unweighted h
      for (std::int64_t f = 0; f < F; f += kChunk) {
        const std::int64_t count = std::min(kChunk, F - f);
        const T* gu = a.gu.as<T>() + p * 2 * F + f;
        load(gu, count, g);
        load(gu + F, count, u);
        load(a.dh.as<T>() + p * F + f, count, dh);
#pragma omp simd reduction(+ : along)
        for (std::int64_t i = 0; i < count; ++i) {
          const float s = sigmoid(g[i]), silu = g[i] * s;
          const float slope = s * (1.f + g[i] * (1.f - s));  // of silu
          along += double(dh[i]) * (silu * u[i]);
          h[i] = share * silu * u[i];
          g[i] = share * dh[i] * u[i] * slope;
          u[i] = share * dh[i] * silu;
        }
        T* dgu = a.dgu.as<T>() + p * 2 * F + f;
        save(g, count, dgu);
        save(u, count, dgu + F);
        if (a.h) save(h, count, a.h.as<T>() + p * F + f);
      }
      a.dshare.as<float>()[p] = static_cast<float>(along);
    }
  });
}

}  // namespace annulus::ref
