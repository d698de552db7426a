// Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011). Every number is keyed by what it belongs
// to, never by which rank draws it, so no layout changes it.
#pragma once
#include <array>
#include <cstdint>

namespace annulus {

/// What a stream of numbers is for; part of the key.
enum class Draw : std::uint32_t { init = 1, shuffle = 2, weight = 3, moment1 = 4, moment2 = 5, test = 6 };

constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                              std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// Four 32-bit numbers for (seed, what, stream, index): stream is a parameter's number or a step or both.
constexpr std::array<std::uint32_t, 4> draw(std::uint64_t seed, Draw what, std::uint64_t stream,
                                            std::uint64_t index) {
  return philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                 static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                {static_cast<std::uint32_t>(seed) ^ (static_cast<std::uint32_t>(what) * 0x9E3779B9u),
                 static_cast<std::uint32_t>(seed >> 32)});
}

/// Uniform in (0, 1): 24 bits, never 0.
constexpr double unit_interval(std::uint32_t bits) {
  return ((bits >> 8) + 0.5) * 0x1p-24;
}

/// A standard normal number (Box-Muller) for the same key (core/rng.cpp).
double normal(std::uint64_t seed, Draw what, std::uint64_t stream, std::uint64_t index);

}  // namespace annulus
