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
       "(checkpoint.resume=PATH), a\n"
       "PEFT adapter folder (the same), or the weights of model.path (checkpoint.resume=none, or no "
       "checkpoint "
       "there).",
       true, run_eval},
      {"plan", "memory and time of a job of any size, without a GPU",
       "annulus plan RUN.ini [--ranks N] [--rank R] [--layers N] [--gpu NAME | --rates FILE] [--document "
       "TOKENS]\n"
       "                     [--ranks-per-node N] [--bandwidth GB/s] [--network GB/s] [--host-memory GB] "
       "[--json]\n"
       "                     [--section.key VALUE ...]\n"
       "Walks one step of rank R of an N-rank job without computing it: bytes by region on device and host, "
       "operations,\n"
       "bytes that are sent, and seconds with what does not hide behind the computation. model.path needs a "
       "config.json\n"
       "only. How fast a device is stands in NAME.rates (h200), which annulus_bench --rates writes; "
       "--bandwidth is "
       "what a\n"
       "rank sends to its node's others, --network to other nodes (without it as --bandwidth). "
       "--host-memory: a "
       "node's,\n"
       "of which nine tenths may be pinned; no limit without it. --document cuts the row into documents, "
       "--layers\n"
       "keeps the first so many. With device.kind=cpu memory alone, unless --rates is given. Code 4 and the "
       "levers that would help when "
       "the job "
       "does\n"
       "not fit.",
       true, run_plan},
      {"rehearse", "a job, or one rank of a larger one, really run and measured",
       "annulus rehearse RUN.ini [--ranks N] [--rank R] [--layers N] [--warmup N] [--steps N]\n"
       "                         [--document TOKENS] [--bandwidth GB/s] [--network GB/s] [--ranks-per-node "
       "N]\n"
       "                         [--profile] [--check N] [--json] [--section.key VALUE ...]\n"
       "Weights and tokens are random; model.path needs a config.json only. Prints seconds per step, memory "
       "of each\n"
       "rank, and with --profile where rank 0's time goes and how fast what it sent went. --document cuts "
       "the row into\n"
       "documents, --layers keeps the first so many. Under mpirun or srun the processes are the job. With "
       "--ranks the\n"
       "job is of that size and its other ranks are pretended: one process is rank R of it, several are "
       "ranks R, R + 1,\n"
       "... side by side. Pretended transfers take as long as their copies, or with --bandwidth as over "
       "links of that\n"
       "rate (--network: between nodes of --ranks-per-node). --check then computes N queries and N keys of "
       "the last\n"
       "layer's attention again in f64, after the timed steps.",
       true, run_rehearse},
      {"tokenize", "texts and chats to a token file, in parallel over the ranks",
       "annulus tokenize IN... OUT.h5 --model.path FOLDER [--data.KEY VALUE ...]\n"
       "Files and flags in any order; OUT.h5 is the last file. --data.tokenizer=bytes needs no model.",
       true, run_tokenize},
      {"import", "a Hugging Face folder to one weights file", "annulus import HF_FOLDER OUT.h5", false,
       run_import},
      {"export", "a run or weights file to a Hugging Face folder",
       "annulus export RUN|FILE.h5 HF_FOLDER [--merge [--model.path BASE]]\n"
       "Of a run folder the newest whole checkpoint is taken. Of a LoRA run the folder is a PEFT adapter, or "
       "with\n"
       "--merge the whole model: the adapters added to their base, which is where the run had it or at "
       "--model.path.",
       false, run_export},
      {"inspect", "how a run stands; what is in a weights, token or checkpoint file",
       "annulus inspect RUN|FILE|HF_FOLDER\nOf a run folder: its last step, its checkpoints, and which of "
       "them is "
       "the newest whole one.",
       false, run_inspect},
      {"report", "one HTML page of a run's curves, also while it goes on",
       "annulus report RUN... [-o FILE.html]\n"
       "Writes RUN/report.html, or FILE: loss and evaluations, gradient norm, learning rate, times, memory, "
       "with "
       "the\nrun's configuration and machine. The page needs no network. Several runs are shown beside one "
       "another.",
       false, run_report},
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
