// Data that Python converts: each refusal shows the very line that does it.
#pragma once
#include <string>

namespace annulus {

/// Text as one word of a shell's command line, in single quotes where it needs any.
std::string shell_word(const std::string& text);

/// Fails (input) when `path` is a Parquet or Arrow file, a folder of the datasets library, or no file but
/// perhaps the name of a data set of the hub.
void refuse_foreign(const std::string& path);

}  // namespace annulus
