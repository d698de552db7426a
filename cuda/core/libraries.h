// Which shared libraries this process has loaded, and from where.
#pragma once
#include <string>
#include <vector>

namespace annulus::cuda {

/// Full paths of loaded libraries whose file name starts so.
std::vector<std::string> loaded_libraries(const std::string& prefix);

/// Environment error when they come from more than one folder: parts of different versions crash, or fall
/// back to slow paths in silence.
void need_one_folder(const std::string& prefix);

/// Path of the library that holds this function or object.
std::string library_of(const void* symbol);

}  // namespace annulus::cuda
