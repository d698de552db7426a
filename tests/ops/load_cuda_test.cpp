// A machine without a GPU, driver or backend is told so, and nothing else breaks.
#include "ops/load_cuda.h"
#include <boost/test/unit_test.hpp>

using namespace annulus;

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(status_says_what_there_is) {
  const CudaProbe probe = cuda_probe();
  BOOST_TEST_MESSAGE(cuda_status());
  BOOST_TEST(!cuda_status().empty());
  BOOST_TEST((probe.devices > 0) == probe.missing.empty());
  if (!probe.report.empty()) {
    for (const char* library : {"cuBLASLt", "cuDNN", "NCCL"})
      BOOST_TEST(probe.report.find(library) != std::string::npos, library);
  }
}

BOOST_AUTO_TEST_CASE(a_backend_that_cannot_be_made_is_an_environment_error) {
  if (cuda_probe().missing.empty()) return;  // there is one: the other tests use it
  try {
    load_cuda_backend({});
    BOOST_FAIL("no error");
  } catch (const Error& error) {  // also when it comes from the loaded library
    BOOST_TEST((error.code == Exit::environment));
    BOOST_TEST(error.what() == cuda_probe().missing);
  }
}

BOOST_AUTO_TEST_SUITE_END()
