#include <filesystem>
#include "app/commands.h"
#include "app/plan_text.h"
#include "train/setup.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

/// GPU.rates among the program's own files: installed, in a bundle, or in the checkout that built it.
std::string find_rates(const std::string& gpu) {
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const char* folder : {"../share/annulus/rates", "../bench/results"}) {
    const fs::path file = (program / folder / (gpu + ".rates")).lexically_normal();
    if (fs::exists(file, none)) return file.string();
  }
  usage_error("--gpu is \"" + gpu + "\", and there is no " + gpu +
              ".rates beside this program: give a file by --rates FILE");
}

}  // namespace

Exit run_plan(Program& program) {
  if (program.world.size() > 1)
    usage_error("plan works everything out in one process: start it without mpirun or srun -n");
  std::vector<std::string>& args = program.arguments;
  PlanOptions options;
  options.ranks = static_cast<int>(take_number(args, "--ranks", 1, 1));
  options.rank = static_cast<int>(take_number(args, "--rank", 0, 0));
  options.ranks_per_node = static_cast<int>(take_number(args, "--ranks-per-node", 0, 1));
  options.bandwidth_gbs = take_real(args, "--bandwidth");
  options.network_gbs = take_real(args, "--network");
  options.host_gb = take_real(args, "--host-memory");
  options.document = take_number(args, "--document", 0, 1);
  const std::int64_t layers = take_layers(args);
  const bool json = take_flag(args, "--json");
  const std::string gpu = take_text(args, "--gpu", "h200");
  std::string path = take_text(args, "--rates", "");
  if (options.rank >= options.ranks) usage_error("--rank must be below --ranks");
  const RunConfig run = parse_run_config(args);
  validate(run, Purpose::plan);
  ModelConfig model = model_config_of(run);
  keep_layers(model, layers);
  const std::string warning = check_positions(model, run);
  if (!warning.empty() && !json) say(program, warning);

  const bool cpu = run.device.kind == "cpu";
  if (path.empty() && !cpu) path = find_rates(gpu);
  std::optional<Rates> rates;
  if (!path.empty()) rates = Rates::read(path);
  const std::unique_ptr<Backend> host = cpu ? make_cpu_backend(1) : nullptr;
  const PlanDevice device{.place = cpu ? Place::host : Place::device,
                          .sizes = cpu ? &host->ops() : nullptr,
                          .rates = rates ? &*rates : nullptr};
  const Plan plan = make_plan(run, model, device, options);
  say(program, json ? plan_json(plan, device) : plan_text(plan, device, path));
  if (plan.fits) return Exit::ok;
  if (!json) say(program, "");
  environment_error(shortage(plan, levers_that_fit(run, model, device, options)));
}

}  // namespace annulus
