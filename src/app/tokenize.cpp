#include <filesystem>
#include "app/commands.h"
#include "core/progress.h"
#include "data/dataset.h"
#include "train/setup.h"

namespace annulus {

Exit run_tokenize(Program& program) {
  const bool print = take_print_config(program.arguments);
  std::vector<std::string> files = take_positionals(program.arguments);
  const RunConfig run = parse_run_config(program.arguments);
  if (print) {
    say(program, print_config(run));
    return Exit::ok;
  }
  if (files.size() < 2)
    usage_error(
        "tokenize needs input files and an output file; usage: annulus tokenize IN... OUT.h5 --model.path "
        "FOLDER");
  const std::string out = files.back();
  files.pop_back();
  if (std::filesystem::path(out).extension() != ".h5")
    usage_error("the last argument is the output file and must end in .h5; \"" + out + "\" was given");
  if (run.model.path.empty() && run.data.tokenizer == "auto")
    usage_error(
        "the tokenizer is that of model.path, which is not set; give --model.path, or "
        "--data.tokenizer=bytes");
  ModelConfig model;
  if (!run.model.path.empty()) model = model_config_of(run);
  Progress bar("tokenizing", "B", on_a_terminal() && program.world.rank() == 0);
  const std::map<std::string, std::string> facts =
      tokenize_files(program.world, files, run.data, model, run.model.path, out,
                     [&](std::int64_t done, std::int64_t all) { bar.at(done, all); });
  bar.clear();
  say(program, out + ": " + describe_tokens(facts));
  return Exit::ok;
}

}  // namespace annulus
