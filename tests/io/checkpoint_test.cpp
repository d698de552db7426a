// Saves: round trips over worlds, faults at every phase, digests, the choice of the newest, pruning.
#include <sys/mount.h>
#include <thread>
#include "io/h5_file.h"
#include "io/state_files.h"

namespace annulus::test {
namespace {

namespace ut = boost::unit_test;

BOOST_AUTO_TEST_SUITE(io)

void check_contents(H5Reader& reader) {
  BOOST_TEST(wrong_in_file(reader) == 0);
  BOOST_TEST((reader.facts() == odd_facts()));
  std::vector<DatasetSpec> want = odd_specs();
  std::sort(want.begin(), want.end(),
            [](const DatasetSpec& a, const DatasetSpec& b) { return a.dataset < b.dataset; });
  BOOST_REQUIRE(reader.datasets().size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    BOOST_TEST(reader.datasets()[i].dataset == want[i].dataset);
    BOOST_TEST((reader.datasets()[i].shape == want[i].shape));
    BOOST_TEST((reader.datasets()[i].dtype == want[i].dtype));
  }
}

BOOST_AUTO_TEST_CASE(state_file_comes_back_with_and_without_mpi) {
  for (const auto& world : {all_ranks(), no_mpi()}) {
    const RanksFolder folder(*world);
    save_odd(*world, folder / "a.h5");
    const auto reader = open_h5(folder / "a.h5");
    reader->verify(*world);
    check_contents(*reader);
    BOOST_TEST(reader->has("/model/one"));
    BOOST_TEST(!reader->has("/model/two"));
    BOOST_TEST(!fs::exists(folder / "a.h5.partial"));
  }
}

BOOST_AUTO_TEST_CASE(ranges_are_read_and_converted) {
  const auto world = no_mpi();
  const RanksFolder folder(*world);
  save_odd(*world, folder / "a.h5");
  const auto reader = open_h5(folder / "a.h5");
  // From the first element, over a digest block's edge, up to the last, and nothing at all; both ways.
  for (std::size_t d : {std::size_t{5}, std::size_t{6}})
    for (DType type : {DType::f32, DType::bf16}) {
      const std::int64_t size = shape_size(odd_specs()[d].shape);
      BOOST_TEST(wrong_values(*reader, d, 0, 1, type) == 0);
      BOOST_TEST(wrong_values(*reader, d, 1'048'570, 13, type) == 0);
      BOOST_TEST(wrong_values(*reader, d, size - 3, 3, type) == 0);
      BOOST_TEST(wrong_values(*reader, d, size, 0, type) == 0);
    }
  float v = 0;
  const Tensor t = make_tensor("t", &v, DType::f32, {1});
  check_error(Exit::bug, {"beyond the end"}, [&] { reader->read("/model/a.weight", 91, 1, t); });
  check_error(Exit::bug, {"beyond the end"}, [&] { reader->read("/model/a.weight", -1, 1, t); });
  check_error(Exit::input, {"/model/absent", "holds no dataset"},
              [&] { reader->read("/model/absent", 0, 1, t); });
}

BOOST_AUTO_TEST_CASE(f32_is_read_as_bf16_rounded_to_nearest_even) {
  const auto world = no_mpi();
  const RanksFolder folder(*world);
  // Halfway to even downward and upward, just above half, overflow to infinity, a denormal.
  std::vector<float> from = {1.00390625f, 1.01171875f, 1.00390637f, 3.4e38f, 1e-40f, -0.f};
  const Tensor t = make_tensor("from", from.data(), DType::f32, {6});
  save_h5(*world, {folder / "a.h5", {{"/model/x", {6}, DType::f32}}, {{"/model/x", t, 0}}, {}, ""});
  std::vector<std::uint16_t> got(6);
  open_h5(folder / "a.h5")->read("/model/x", 0, 6, make_tensor("to", got.data(), DType::bf16, {6}));
  const std::vector<std::uint16_t> want = {0x3F80, 0x3F82, 0x3F81, 0x7F80, 0x0001, 0x8000};
  BOOST_TEST(got == want, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_save_runs_beside_other_work_and_can_be_dropped) {
  const auto world = all_ranks();
  const RanksFolder folder(*world);
  const std::vector<DatasetSpec> specs = odd_specs();
  const OddPieces mine(specs, 0, 1);
  {
    const auto save = begin_save(*world, {folder / "a.h5", specs, mine.pieces, odd_facts(), ""});
    BOOST_TEST(fs::exists(folder / "a.h5.partial"));
    std::thread writer([&] { save->write(); });
    writer.join();
    save->finish();
  }
  check_contents(*open_h5(folder / "a.h5"));
  { const auto dropped = begin_save(*world, {folder / "b.h5", specs, mine.pieces, odd_facts(), ""}); }
  BOOST_TEST(!fs::exists(folder / "b.h5"));
  BOOST_TEST(!fs::exists(folder / "b.h5.partial"));
}

BOOST_AUTO_TEST_CASE(pieces_that_do_not_cover_a_dataset_once_are_a_bug) {
  const auto world = no_mpi();
  const RanksFolder folder(*world);
  std::vector<float> v(5);
  const Tensor t = make_tensor("v", v.data(), DType::f32, {3});
  const std::vector<DatasetSpec> specs = {{"/model/x", {5}, DType::f32}};
  check_error(Exit::bug, {"byte 12 of /model/x"}, [&] {
    save_h5(*world, {folder / "a.h5", specs, {{"/model/x", t, 0}}, {}, ""});
  });
  check_error(Exit::bug, {"byte 12 of /model/x"}, [&] {
    save_h5(*world, {folder / "a.h5", specs, {{"/model/x", t, 0}, {"/model/x", t, 2}}, {}, ""});
  });
  check_error(Exit::bug, {"outside"}, [&] {
    save_h5(*world, {folder / "a.h5", specs, {{"/model/x", t, 3}}, {}, ""});
  });
  BOOST_TEST(fs::is_empty(folder.path()));
}

void check_any_world_reads() {
  const auto world = all_ranks();
  const RanksFolder folder(*world);
  for (int n = 1; n <= world->size(); ++n) {
    const std::string path = folder / ("by" + std::to_string(n) + ".h5");
    const auto writers = world->split(world->rank() < n ? 0 : 1);
    if (world->rank() < n) save_odd(*writers, path);
    world->barrier();
    const auto reader = open_h5(path);
    BOOST_TEST(wrong_in_file(*reader) == 0, "written by " << n);
    for (int m = 1; m <= world->size(); ++m) world->split(world->rank() < m ? 0 : 1)->barrier();
    for (int m = 1; m <= world->size(); ++m) {
      const auto readers = world->split(world->rank() < m ? 0 : 1);
      reader->verify(*readers);
    }
    if (n > 1 && world->rank() == 0)  // the same bytes whoever wrote them
      BOOST_TEST((slurp(path) == slurp(folder / "by1.h5")), "written by " << n);
  }
}

BOOST_AUTO_TEST_CASE(any_world_reads_what_any_world_wrote_2, *ut::label("ranks2")) {
  check_any_world_reads();
}
BOOST_AUTO_TEST_CASE(any_world_reads_what_any_world_wrote_3, *ut::label("ranks3")) {
  check_any_world_reads();
}
BOOST_AUTO_TEST_CASE(any_world_reads_what_any_world_wrote_4, *ut::label("ranks4")) {
  check_any_world_reads();
}

/// A fault on any rank in any phase: every rank gets the same error, the old file stays, nothing is left
/// over.
void check_faults(Comm& world) {
  const RanksFolder folder(world);
  const std::string path = folder / "step-000001.h5";
  save_small(world, path);
  world.barrier();
  const std::string before = slurp(path);
  for (const char* phase : {"create", "reserve", "write", "digest", "mark", "rename"})
    for (int rank = 0; rank < world.size(); ++rank) {
      const std::string spec = std::string(phase) + ":" + std::to_string(rank);
      check_error(Exit::environment, {"disk full", "GB needed", "GB free in", path},
                  [&] { save_small(world, path, spec + ":enospc"); });
      world.barrier();
      BOOST_TEST((slurp(path) == before), spec);
      BOOST_TEST(!fs::exists(path + ".partial"), spec);
      check_error(Exit::environment, {"debug.fail", phase},
                  [&] { save_small(world, folder / "new.h5", spec); });
      world.barrier();
      BOOST_TEST(!fs::exists(folder / "new.h5"), spec);
      BOOST_TEST(!fs::exists(folder / "new.h5.partial"), spec);
      world.barrier();
    }
  save_small(world, path, "other:0:kill");
  open_h5(path)->verify(world);
}

BOOST_AUTO_TEST_CASE(faults_alone) {
  check_faults(*all_ranks());
}
BOOST_AUTO_TEST_CASE(faults_of_2, *ut::label("ranks2")) {
  check_faults(*all_ranks());
}
BOOST_AUTO_TEST_CASE(faults_of_3, *ut::label("ranks3")) {
  check_faults(*all_ranks());
}

BOOST_AUTO_TEST_CASE(a_bad_fault_spec_is_a_usage_error) {
  const auto world = no_mpi();
  const RanksFolder folder(*world);
  for (const char* spec :
       {"write", "write:", "write:x", "write:0:burn", ":0", "write:-1", "write:0:kill:now"})
    check_error(Exit::usage, {"debug.fail", spec}, [&] { save_small(*world, folder / "a.h5", spec); });
}

BOOST_AUTO_TEST_CASE(places_that_cannot_be_written) {
  for (const auto& world : {all_ranks(), no_mpi()}) {
    const RanksFolder folder(*world);
    spit(folder / "file", "x");
    fs::create_directory(folder / "folder.h5");
    check_error(Exit::environment, {"file/a.h5", "a part of the path is a file"},
                [&] { save_small(*world, folder / "file/a.h5"); });
    check_error(Exit::environment, {"absent/a.h5", "create the folder"},
                [&] { save_small(*world, folder / "absent/a.h5"); });
    check_error(Exit::environment, {"folder.h5", "is a folder"},
                [&] { save_small(*world, folder / "folder.h5"); });
    BOOST_TEST(slurp(folder / "file") == "x");
  }
}

/// A tmpfs of 6 MiB; needs root and the right to mount.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& at) : at_(at) {
    fs::create_directory(at);
    mounted_ = ::mount("none", at.c_str(), "tmpfs", 0, "size=6m") == 0;
  }
  ~SmallDisk() {
    if (mounted_ && ::umount2(at_.c_str(), MNT_DETACH) != 0) BOOST_TEST_MESSAGE("umount failed: " << at_);
  }
  bool mounted() const { return mounted_; }

 private:
  std::string at_;
  bool mounted_ = false;
};

boost::test_tools::assertion_result can_mount(ut::test_unit_id) {
  std::string at = (fs::temp_directory_path() / "annulus-mount-XXXXXX").string();
  if (mkdtemp(at.data()) == nullptr) return false;
  bool can = false;
  { can = SmallDisk(at + "/disk").mounted(); }
  std::error_code none;
  fs::remove_all(at, none);
  boost::test_tools::assertion_result result(can);
  if (!can) result.message() << "no right to mount a small tmpfs";
  return result;
}

void check_full_disk() {
  const auto world = all_ranks();
  const RanksFolder folder(*world);
  std::unique_ptr<SmallDisk> disk;
  if (world->rank() == 0) disk = std::make_unique<SmallDisk>(folder / "disk");
  world->barrier();
  const std::string path = folder / "disk/a.h5";
  std::vector<float> small(1000, 1.5f);
  const auto save_4_kb = [&] {
    const bool mine = world->rank() == world->size() - 1;
    std::vector<Piece> pieces;
    if (mine) pieces.push_back({"/model/x", make_tensor("x", small.data(), DType::f32, {1000}), 0});
    save_h5(*world, {path, {{"/model/x", {1000}, DType::f32}}, pieces, {}, ""});
  };
  save_4_kb();
  world->barrier();
  const std::string before = slurp(path);
  // 8.4 MB do not fit beside it; nor, on a disk filled to the brim, does anything.
  check_error(Exit::environment, {"disk full", "GB needed"}, [&] { save_odd(*world, path); });
  std::string filler;
  if (world->rank() == 0) {
    std::ofstream out(folder / "disk/filler", std::ios::binary);
    const std::string block(4096, 'f');
    while (out.write(block.data(), 4096).flush()) {
    }
  }
  world->barrier();
  check_error(Exit::environment, {"disk full", "0.0000 GB free"}, save_4_kb);
  world->barrier();
  BOOST_TEST((slurp(path) == before));
  BOOST_TEST(!fs::exists(path + ".partial"));
  open_h5(path)->verify(*world);
  world->barrier();
}

BOOST_AUTO_TEST_CASE(a_disk_that_is_full, *ut::precondition(can_mount)) {
  check_full_disk();
}
BOOST_AUTO_TEST_CASE(a_disk_that_is_full_for_3, *ut::label("ranks3") * ut::precondition(can_mount)) {
  check_full_disk();
}

/// Flips one bit of an element.
void flip_bit(const std::string& path, const std::string& dataset, std::int64_t element) {
  std::size_t at = 0;
  {
    const H5Index index = open_h5_index(path);
    at = static_cast<std::size_t>(index.at(dataset).offset + element * bytes_of(index.at(dataset).kind));
  }
  std::string bytes = slurp(path);
  bytes[at + 1] = static_cast<char>(bytes[at + 1] ^ 4);
  spit(path, bytes);
}

void check_flipped() {
  const auto world = all_ranks();
  const RanksFolder folder(*world);
  save_odd(*world, folder / "a.h5");
  world->barrier();
  if (world->rank() == 0) flip_bit(folder / "a.h5", "/model/embed_tokens.weight", 1'050'000);
  world->barrier();
  const auto reader = open_h5(folder / "a.h5");
  check_error(Exit::input, {"/model/embed_tokens.weight", "bytes 4194304 to 4210603", "a.h5"},
              [&] { reader->verify(*world); });
}

BOOST_AUTO_TEST_CASE(one_flipped_bit_is_found) {
  check_flipped();
}
BOOST_AUTO_TEST_CASE(one_flipped_bit_is_found_by_3, *ut::label("ranks3")) {
  check_flipped();
}

void check_newest_and_prune() {
  const auto world = all_ranks();
  const RanksFolder folder(*world);
  const bool first = world->rank() == 0;
  std::vector<std::string> said;
  const auto say = [&](const std::string& line) { said.push_back(line); };
  std::string path;
  BOOST_TEST((newest_checkpoint(*world, folder.path(), say, &path) == nullptr));
  BOOST_TEST((newest_checkpoint(*world, folder / "absent", say, &path) == nullptr));
  for (const char* name :
       {"step-000001.h5", "step-000002.h5", "step-000010.h5", "step-000011.h5", "step-1000000.h5"})
    save_small(*world, folder / name);
  if (first) {
    flip_bit(folder / "step-1000000.h5", "/model/a.weight", 20);
    spit(folder / "step-000011.h5", slurp(folder / "step-000011.h5").substr(0, 5000));
    spit(folder / "step-000009.h5", "not HDF5 at all");
    spit(folder / "step-000003.h5.partial", "abandoned");
    spit(folder / "step-2000000.h5.partial", "newer");
    for (const char* name :
         {"step-12.h5", "step-000012x.h5", "best.h5", "step--00012.h5", "step-000001.h5.bak"})
      spit(folder / name, "somebody's own");
    fs::create_directory(folder / "step-3000000.h5");
  }
  world->barrier();
  const auto found = newest_checkpoint(*world, folder.path(), say, &path);
  BOOST_REQUIRE(found != nullptr);
  BOOST_TEST(path == folder / "step-000010.h5");
  if (first) {
    BOOST_REQUIRE(said.size() == 4);
    BOOST_TEST((said[0].find("step-2000000.h5.partial") != std::string::npos &&
                said[0].find("did not finish") != std::string::npos));
    BOOST_TEST((said[1].find("step-000003.h5.partial") != std::string::npos));
    BOOST_TEST((said[2].find("step-1000000.h5") != std::string::npos &&
                said[2].find("/model/a.weight") != std::string::npos));
    BOOST_TEST((said[3].find("step-000011.h5") != std::string::npos));
  }
  BOOST_TEST(list_checkpoints(folder.path()).size() == 6u);
  prune_checkpoints(*world, folder.path(), 2);
  world->barrier();
  const auto there = [&](const char* name) { return fs::exists(folder / name); };
  // Kept: the newest that verifies and one whole one before it; what is not whole or not ours is not touched.
  for (const char* name : {"step-000010.h5", "step-000002.h5", "step-1000000.h5", "step-000011.h5",
                           "step-000009.h5", "step-2000000.h5.partial", "step-12.h5", "step-000012x.h5",
                           "best.h5", "step--00012.h5", "step-000001.h5.bak", "step-3000000.h5"})
    BOOST_TEST(there(name), name);
  BOOST_TEST(!there("step-000001.h5"));
  BOOST_TEST(!there("step-000003.h5.partial"));
  world->barrier();
  prune_checkpoints(*world, folder.path(), 0);
  world->barrier();
  BOOST_TEST(there("step-000010.h5"));
  BOOST_TEST(!there("step-000002.h5"));
}

BOOST_AUTO_TEST_CASE(the_newest_whole_checkpoint_is_taken_and_kept) {
  check_newest_and_prune();
}
BOOST_AUTO_TEST_CASE(the_newest_whole_checkpoint_is_taken_and_kept_by_2, *ut::label("ranks2")) {
  check_newest_and_prune();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace annulus::test
