// import and export.
#include <filesystem>
#include "app/commands.h"
#include "io/hf_export.h"
#include "train/hf_folder.h"

namespace annulus {

Exit run_import(Program& program) {
  expect_arguments(program, 2, "annulus import HF_FOLDER OUT.h5");
  import_hf(program.world, program.arguments[0], program.arguments[1]);
  say(program, "wrote " + program.arguments[1]);
  return Exit::ok;
}

Exit run_export(Program& program) {
  expect_arguments(program, 2, "annulus export RUN|FILE.h5 HF_FOLDER");
  std::string path = program.arguments[0];
  if (std::filesystem::is_directory(path)) {
    const std::string folder = path + "/checkpoints";
    if (!newest_checkpoint(
            program.world, folder, [&](const std::string& line) { say(program, line); }, &path))
      input_error(folder + " holds no whole checkpoint; give a run folder that has one, or a .h5 file");
    say(program, "taking " + path);
  }
  export_folder(program.world, path, program.arguments[1], [] {});
  say(program, "wrote " + program.arguments[1]);
  return Exit::ok;
}

}  // namespace annulus
