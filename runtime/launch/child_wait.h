// Waiting for children and signals at once, in the one thread of a supervisor.
#pragma once

namespace dtorch {

// Blocks SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGQUIT, SIGCHLD and, unless it is ignored (nohup), SIGHUP in this thread,
// so that the next functions can wait for them. SIGPIPE is ignored from now on: a reader of the output that went away
// doesn't end who supervises. SIGCHLD is no longer ignored.
void block_supervisor_signals();
// Waits until a child ends, at most `limit_s`; other signals wait for their turn.
void wait_for_child(double limit_s);
// Waits until a child ends or one of these signals comes, at most `limit_s`. Returns the signal, 0 when there was none
// or it was SIGCHLD.
int wait_for_child_or_signal(double limit_s);

}  // namespace dtorch
