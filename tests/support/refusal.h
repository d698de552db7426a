// Bad input must end in an Error with the right exit code and a sentence that says what and where.
#pragma once
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>
#include "core/check.h"

namespace annulus::test {

/// Runs `work`, which must throw an Error with this exit code whose one sentence contains all `parts`.
template <class Work>
void check_refused(Exit code, const std::vector<std::string>& parts, Work work) {
  try {
    work();
    BOOST_ERROR("nothing was refused; expected a sentence with: " << parts.front());
  } catch (const Error& e) {
    const std::string text = e.what();
    BOOST_TEST(static_cast<int>(e.code) == static_cast<int>(code), text);
    for (const std::string& part : parts)
      BOOST_TEST((text.find(part) != std::string::npos),
                 "\"" << text << "\" does not say \"" << part << "\"");
    BOOST_TEST((text.find('\n') == std::string::npos), "more than one line: " << text);
  }
}

}  // namespace annulus::test
