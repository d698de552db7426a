// import and export.
#include <algorithm>
#include <filesystem>
#include "app/commands.h"
#include "io/hf_export.h"
#include "train/hf_folder.h"

namespace annulus {

namespace {

/// Takes `name VALUE` out of the arguments; "" when it is not there.
std::string take_value(std::vector<std::string>& arguments, const std::string& name) {
  const auto at = std::find(arguments.begin(), arguments.end(), name);
  if (at == arguments.end()) return {};
  if (at + 1 == arguments.end()) usage_error(name + " has no value");
  const std::string value = at[1];
  arguments.erase(at, at + 2);
  return value;
}

}  // namespace

Exit run_import(Program& program) {
  expect_arguments(program, 2, "annulus import HF_FOLDER OUT.h5");
  import_hf(program.world, program.arguments[0], program.arguments[1]);
  say(program, "wrote " + program.arguments[1]);
  return Exit::ok;
}

Exit run_export(Program& program) {
  const bool merge = std::erase(program.arguments, "--merge") > 0;
  const std::string base = take_value(program.arguments, "--model.path");
  expect_arguments(program, 2, "annulus export RUN|FILE.h5 HF_FOLDER [--merge [--model.path BASE]]");
  if (!base.empty() && !merge)
    usage_error(
        "--model.path is given without --merge; adapters are merged into a base model by --merge alone");
  std::string path = program.arguments[0];
  if (std::filesystem::is_directory(path)) {
    const std::string folder = path + "/checkpoints";
    if (!newest_checkpoint(
            program.world, folder, [&](const std::string& line) { say(program, line); }, &path))
      input_error(folder + " holds no whole checkpoint; give a run folder that has one, or a .h5 file");
    say(program, "taking " + path);
  }
  if (merge)
    export_merged(program.world, path, base, program.arguments[1], [] {});
  else
    export_folder(program.world, path, program.arguments[1], [] {});
  say(program, "wrote " + program.arguments[1]);
  return Exit::ok;
}

}  // namespace annulus
