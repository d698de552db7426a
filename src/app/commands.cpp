#include "app/commands.h"
#include <algorithm>
#include <cstdio>

namespace annulus {

const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands = {
      {"train", "train; resumes by itself",
       "annulus train RUN.ini [--section.key VALUE ...] [--print-config]\n"
       "Under mpirun or srun every process is a rank. A run that was stopped goes on from its newest "
       "checkpoint.",
       true, run_train},
      {"eval", "loss, perplexity and accuracy on data.eval",
       "annulus eval RUN.ini [--section.key VALUE ...] [--print-config]\n"
       "Takes the newest checkpoint of run.dir (checkpoint.resume=auto), a given one "
       "(checkpoint.resume=PATH), or\n"
       "the weights of model.path (checkpoint.resume=none, or no checkpoint there).",
       true, run_eval},
      {"rehearse", "one rank of a larger job, really run, on one device",
       "annulus rehearse RUN.ini [--ranks N] [--rank R] [--layers N] [--warmup N] [--steps N]\n"
       "                         [--document TOKENS] [--profile] [--section.key VALUE ...]\n"
       "Peers are pretended, weights and tokens are random; model.path needs a config.json only. Prints "
       "seconds\n"
       "per step, memory, and with --profile where the time goes. --document cuts the row into documents.",
       true, run_rehearse},
      {"tokenize", "texts and chats to a token file, in parallel over the ranks",
       "annulus tokenize IN... OUT.h5 --model.path FOLDER [--data.KEY VALUE ...]\n"
       "Files and flags in any order; OUT.h5 is the last file. --data.tokenizer=bytes needs no model.",
       true, run_tokenize},
      {"import", "a Hugging Face folder to one weights file", "annulus import HF_FOLDER OUT.h5", false,
       run_import},
      {"export", "a run or weights file to a Hugging Face folder",
       "annulus export RUN|FILE.h5 HF_FOLDER\nOf a run folder the newest whole checkpoint is taken.", false,
       run_export},
      {"inspect", "what is in a weights, token or checkpoint file", "annulus inspect FILE|HF_FOLDER", false,
       run_inspect},
      {"info", "versions and paths of the libraries loaded, processors and memory, GPUs", "annulus info",
       false, run_info}};
  return kCommands;
}

void say(const Program& program, const std::string& line) {
  if (program.world.rank() != 0) return;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void end_job(const MpiSession& session, const Error& e) {
  std::fprintf(stderr, "annulus: %s\n", e.what());
  session.abort(e.code);
}

std::vector<std::string> take_positionals(std::vector<std::string>& arguments) {
  std::vector<std::string> taken, flags;
  bool value = false;  // the next argument is a flag's value
  for (const std::string& a : arguments) {
    const bool flag = !value && a.rfind("--", 0) == 0;
    (value || flag ? flags : taken).push_back(a);
    value = flag && a.find('=') == std::string::npos;
  }
  arguments = std::move(flags);
  return taken;
}

void expect_arguments(const Program& program, std::size_t count, const char* usage) {
  for (const std::string& a : program.arguments)
    if (a.rfind("--", 0) == 0) usage_error("the flag " + a + " is not known here; usage: " + usage);
  if (program.arguments.size() != count)
    usage_error(std::to_string(program.arguments.size()) + " arguments were given and " +
                std::to_string(count) + " are needed; usage: " + usage);
}

bool take_print_config(std::vector<std::string>& arguments) {
  const auto kept = std::remove(arguments.begin(), arguments.end(), "--print-config");
  const bool given = kept != arguments.end();
  arguments.erase(kept, arguments.end());
  return given;
}

}  // namespace annulus
