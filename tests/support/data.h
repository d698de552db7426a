// Where files that tests read lie.
#pragma once
#include <string>

namespace annulus::test {

/// A file or folder of the source tree: in a bundle it lies under ../share/annulus beside the test program,
/// which then needs no source tree.
std::string test_data(const std::string& path);

}  // namespace annulus::test
