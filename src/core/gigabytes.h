// Bytes as people read them.
#pragma once
#include <cstdio>
#include <string>

namespace annulus {

/// "12.34 GB"; two more digits below a tenth.
inline std::string gigabytes(double bytes) {
  char text[32];
  if (std::snprintf(text, sizeof text, bytes < 1e8 ? "%.4f GB" : "%.2f GB", bytes * 1e-9) < 0) return "?";
  return text;
}

}  // namespace annulus
