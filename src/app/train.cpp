#include "app/commands.h"
#include "train/trainer.h"

namespace annulus {

Exit run_train(Program& program) {
  const bool print = take_print_config(program.arguments);
  const RunConfig run = take_config(program, Purpose::train);
  if (print) {
    say(program, print_config(run));
    return Exit::ok;
  }
  const std::unique_ptr<Backend> backend = make_backend(program, run);
  say(program, backend->describe());
  Trainer trainer(program.world, program.node, *backend, run);
  try {
    while (trainer.more()) trainer.step();
    return trainer.finish();
  } catch (const Error& e) {
    trainer.ended(std::string("error: ") + e.what());
    // Now, and not after the trainer's groups are freed: the other ranks may be in the middle of a
    // collective.
    if (!e.everywhere) end_job(program.session, e);
    throw;
  }
}

}  // namespace annulus
