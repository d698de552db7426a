// The test program's main: MPI lives as long as the process, whatever the number of ranks.
#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>
#include "support/world.h"

namespace annulus::test {
MpiSession* g_session = nullptr;

MpiSession& session() {
  return *g_session;
}

}  // namespace annulus::test

static bool init() {
  return true;
}

int main(int argc, char** argv) {
  annulus::MpiSession session(&argc, &argv);
  annulus::test::g_session = &session;
  return boost::unit_test::unit_test_main(&init, argc, argv);
}
