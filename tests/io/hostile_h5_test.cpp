// HDF5 files that somebody else made: each kind of trap is an input error that names it, before any data is
// read.
#include <sys/stat.h>
#include "io/h5.h"
#include "io/h5_file.h"
#include "io/state_files.h"

namespace annulus::test {
namespace {

BOOST_AUTO_TEST_SUITE(io)

/// A good file of one dataset, changed by `change` through the library.
std::string altered(const RanksFolder& folder, const std::function<void(hid_t)>& change) {
  static const auto world = no_mpi();
  const std::string path = folder / "hostile.h5";
  std::vector<float> v(91, 0.5f);
  const Tensor t = make_tensor("v", v.data(), DType::f32, {91});
  save_h5(*world, {path, {{"/model/x", {7, 13}, DType::f32}}, {{"/model/x", t, 0}}, {{"step", "3"}}, ""});
  const H5File file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), "H5Fopen");
  change(file.id());
  return path;
}

H5Set add_set(hid_t file, const char* name, hid_t type, const std::vector<hsize_t>& dims, hid_t plan) {
  const H5Space space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                      "H5Screate_simple");
  return H5Set(H5Dcreate2(file, name, type, space.id(), H5P_DEFAULT, plan, H5P_DEFAULT), "H5Dcreate2");
}

H5Plan plan_of(const std::function<void(hid_t)>& set) {
  H5Plan plan(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");
  set(plan.id());
  return plan;
}

BOOST_AUTO_TEST_CASE(links_other_than_plain_are_refused) {
  const auto world = no_mpi();
  const RanksFolder folder(*world);
  spit(folder / "secret.h5", "x");
  const auto refused = [&](std::initializer_list<std::string_view> words,
                           const std::function<void(hid_t)>& change) {
    const std::string path = altered(folder, change);
    check_error(Exit::input, words, [&] { open_h5(path); });
  };
  refused({"/model/soft is a soft link", "hostile.h5"}, [](hid_t f) {
    h5(H5Lcreate_soft("/model/x", f, "/model/soft", H5P_DEFAULT, H5P_DEFAULT), "H5Lcreate_soft");
  });
  refused({"/model/dangling is a soft link"}, [](hid_t f) {
    h5(H5Lcreate_soft("/nowhere", f, "/model/dangling", H5P_DEFAULT, H5P_DEFAULT), "H5Lcreate_soft");
  });
  refused({"/model/away is an external link"}, [](hid_t f) {
    h5(H5Lcreate_external("secret.h5", "/x", f, "/model/away", H5P_DEFAULT, H5P_DEFAULT),
       "H5Lcreate_external");
  });
  refused({"has a second name"}, [](hid_t f) {
    h5(H5Lcreate_hard(f, "/model/x", f, "/model/twin", H5P_DEFAULT, H5P_DEFAULT), "H5Lcreate_hard");
  });
  refused({"has a second name"}, [](hid_t f) {  // a folder within itself
    h5(H5Lcreate_hard(f, "/model", f, "/model/again", H5P_DEFAULT, H5P_DEFAULT), "H5Lcreate_hard");
  });
  refused({"nested deeper"}, [](hid_t f) {
    std::string name;
    for (int i = 0; i < 12; ++i) {
      name += "/g";
      H5Group(H5Gcreate2(f, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "H5Gcreate2");
    }
  });
  refused({"/model/type is neither a group nor a dataset"}, [](hid_t f) {
    const H5Type type = h5_type(H5Kind::i64);
    h5(H5Tcommit2(f, "/model/type", type.id(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "H5Tcommit2");
  });
}

BOOST_AUTO_TEST_CASE(storage_other_than_contiguous_is_refused) {
  const auto world = no_mpi();
  const RanksFolder folder(*world);
  const auto refused = [&](std::initializer_list<std::string_view> words, const H5Plan& plan,
                           hid_t type = H5T_IEEE_F32LE) {
    const std::string path = altered(folder, [&](hid_t f) {
      add_set(f, "/model/bad", type, {16, 16}, plan.id());
    });
    check_error(Exit::input, words, [&] { open_h5(path); });
  };
  const hsize_t chunk[2] = {4, 4};
  refused({"/model/bad is not stored contiguously"},
          plan_of([&](hid_t p) { h5(H5Pset_chunk(p, 2, chunk), "H5Pset_chunk"); }));
  refused({"/model/bad is not stored contiguously"}, plan_of([&](hid_t p) {
            h5(H5Pset_chunk(p, 2, chunk), "H5Pset_chunk");
            h5(H5Pset_fletcher32(p), "H5Pset_fletcher32");
          }));
  refused({"/model/bad is not stored contiguously"},
          plan_of([](hid_t p) { h5(H5Pset_layout(p, H5D_COMPACT), "H5Pset_layout"); }));
  refused({"/model/bad lies in external files"},
          plan_of([](hid_t p) { h5(H5Pset_external(p, "/etc/passwd", 0, 1024), "H5Pset_external"); }));
  refused({"/model/bad is not stored contiguously"}, plan_of([](hid_t p) {
            const hsize_t dims[2] = {16, 16};
            const H5Space space(H5Screate_simple(2, dims, nullptr), "H5Screate_simple");
            h5(H5Pset_virtual(p, space.id(), "other.h5", "/x", space.id()), "H5Pset_virtual");
          }));
  const auto early = [] {
    return plan_of([](hid_t p) { h5(H5Pset_alloc_time(p, H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time"); });
  };
  refused({"/model/bad has no data of its size"},
          plan_of([](hid_t) {}));  // never written, so no place in the file
  refused({"/model/bad has no digest"}, early());
  refused({"/model/bad has a type"}, early(), H5T_IEEE_F32BE);
  refused({"/model/bad has a type"}, early(), H5T_STD_I16LE);
  refused({"/model/bad has a type"}, early(), H5T_C_S1);
}

BOOST_AUTO_TEST_CASE(shapes_and_digests_must_agree) {
  const auto world = no_mpi();
  const RanksFolder folder(*world);
  const H5Plan early =
      plan_of([](hid_t p) { h5(H5Pset_alloc_time(p, H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time"); });
  const auto refused = [&](std::initializer_list<std::string_view> words,
                           const std::function<void(hid_t)>& change) {
    const std::string path = altered(folder, change);
    check_error(Exit::input, words, [&] { open_h5(path); });
  };
  refused({"/model/wide has a shape that no Annulus file holds"}, [&](hid_t f) {
    add_set(f, "/model/wide", H5T_IEEE_F32LE, {1, 1, 1, 1, 1, 1, 1, 1, 1}, early.id());
  });
  refused({"/model/x has no digest"},
          [](hid_t f) { h5(H5Ldelete(f, "/digest/model/x", H5P_DEFAULT), "H5Ldelete"); });
  refused({"the digest of /model/x is not 1 numbers"}, [&](hid_t f) {
    h5(H5Ldelete(f, "/digest/model/x", H5P_DEFAULT), "H5Ldelete");
    add_set(f, "/digest/model/x", H5T_STD_U32LE, {2}, early.id());
  });
  refused({"/digest/model/y belongs to no dataset"},
          [&](hid_t f) { add_set(f, "/digest/model/y", H5T_STD_U32LE, {1}, early.id()); });
  refused({"/model/ids has a type that weights"}, [&](hid_t f) {
    add_set(f, "/model/ids", H5T_STD_U32LE, {1}, early.id());
    add_set(f, "/digest/model/ids", H5T_STD_U32LE, {1}, early.id());
  });
}

BOOST_AUTO_TEST_CASE(marks_and_facts_are_checked) {
  const auto world = no_mpi();
  const RanksFolder folder(*world);
  const auto refused = [&](std::initializer_list<std::string_view> words,
                           const std::function<void(hid_t)>& change) {
    const std::string path = altered(folder, change);
    check_error(Exit::input, words, [&] { open_h5(path); });
  };
  refused({"is not whole", "did not finish"}, [](hid_t f) { h5_set_number(f, "complete", 0); });
  refused({"version is 2, not 1"}, [](hid_t f) { h5_set_number(f, "version", 2); });
  refused({"attribute version"}, [](hid_t f) { h5(H5Adelete(f, "version"), "H5Adelete"); });
  refused({"kind 'else' is unknown"}, [](hid_t f) {
    h5(H5Adelete(f, "kind"), "H5Adelete");
    h5_write_text(f, "kind", "else");
  });
  refused({"token file"}, [](hid_t f) {
    h5(H5Adelete(f, "kind"), "H5Adelete");
    h5_write_text(f, "kind", "tokens");
    H5Group(H5Gcreate2(f, "/source", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "H5Gcreate2");
  });
  refused({"attribute odd is not a string of fixed length"}, [](hid_t f) {
    const H5Type type(H5Tcopy(H5T_C_S1), "H5Tcopy");
    h5(H5Tset_size(type.id(), H5T_VARIABLE), "H5Tset_size");
    const H5Space space(H5Screate(H5S_SCALAR), "H5Screate");
    const H5Group run(H5Gopen2(f, "/run", H5P_DEFAULT), "H5Gopen2");
    const H5Attribute a(H5Acreate2(run.id(), "odd", type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT),
                        "H5Acreate2");
  });
  refused({"attribute odd is not a string of fixed length"}, [](hid_t f) {
    const H5Group run(H5Gopen2(f, "/run", H5P_DEFAULT), "H5Gopen2");
    h5_create_number(run.id(), "odd", 1);
  });
  refused({"H5Gopen2"}, [](hid_t f) { h5(H5Ldelete(f, "/run", H5P_DEFAULT), "H5Ldelete"); });
}

BOOST_AUTO_TEST_CASE(files_that_are_cut_or_no_files_at_all) {
  const auto world = no_mpi();
  const RanksFolder folder(*world);
  const std::string good = slurp(altered(folder, [](hid_t) {}));
  const std::string path = folder / "cut.h5";
  for (std::size_t bytes :
       {std::size_t{0}, std::size_t{7}, std::size_t{100}, good.size() / 2, good.size() - 1}) {
    spit(path, good.substr(0, bytes));
    check_error(Exit::input, {"cut.h5", "copy it again"}, [&] { open_h5(path); });
  }
  for (std::size_t at = 0; at < 48; ++at) {  // the superblock, which has a checksum
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x11);
    spit(path, bytes);
    check_error(Exit::input, {"cut.h5"}, [&] { open_h5(path); });
  }
  check_error(Exit::input, {"there is no file", "absent.h5"}, [&] { open_h5(folder / "absent.h5"); });
  check_error(Exit::input, {"not a regular file"}, [&] { open_h5(folder.path()); });
  BOOST_REQUIRE(::mkfifo((folder / "pipe.h5").c_str(), 0600) == 0);
  check_error(Exit::input, {"not a regular file"}, [&] { open_h5(folder / "pipe.h5"); });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace annulus::test
