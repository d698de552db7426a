// What a test needs of MPI. Cases labelled ranksN run with N ranks; all others with one.
#pragma once
#include "comm/comm.h"

namespace annulus::test {

MpiSession& session();

}  // namespace annulus::test
