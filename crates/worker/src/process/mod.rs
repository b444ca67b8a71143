//! The executors `process` and `shell`: each command runs under its own shim.
//!
//! The shim is a separate process, so that it outlives a worker that dies. It owns every process that the
//! command starts. It ends them on request, when the command has ended, and when the pipe from the worker
//! closes. Dropping the handler's future closes that pipe: whatever happens to the worker, no process is left
//! behind. A shim that its own command has stopped or killed cannot do this; then the worker ends the command
//! ([`containment`]). This module knows how to talk to a shim, not what the shim does.

pub mod containment;
mod outcome;
mod payload;
pub mod protocol;
mod spool;

use containment::{ContainedCommand, Containment, Keeper};
use futures_util::future::{Either, join, select};
use outcome::CommandOutcome;
use protocol::{CommandEnd, CommandNote, FRAME_HEAD_BYTES, Frame, How, Request, STOP_AT_ONCE, STOP_POLITELY};
use punctual_core::limits;
use punctual_core::notes::Checkpoint;
use punctual_core::ports::{Assignment, ExecutionContext, Executor, Host, LogStream, Outcome, Stop, Task};
use spool::ResultSpool;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The variables with the place of the attempt in a trace.
const TRACEPARENT: &str = "TRACEPARENT";
const TRACESTATE: &str = "TRACESTATE";

/// How to start a shim.
#[derive(Debug, Clone)]
pub struct ShimCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// The environment of every command, in addition to its job's.
    pub env: BTreeMap<String, String>,
    pub containment: Arc<dyn Containment>,
}

/// Runs an argument list as it is, without a shell.
pub fn process_executor(shim: ShimCommand, host: &Host) -> Arc<dyn Executor> {
    Arc::new(CommandExecutor::new("process", payload::process, shim, host))
}

/// Runs a script through `sh -c`.
pub fn shell_executor(shim: ShimCommand, host: &Host) -> Arc<dyn Executor> {
    Arc::new(CommandExecutor::new("shell", payload::shell, shim, host))
}

struct CommandExecutor {
    job_type: &'static str,
    /// Parses the payload, or returns what is wrong with it.
    request: fn(&str) -> Result<Request, String>,
    shim: Arc<ShimCommand>,
    keeper: Keeper,
}

impl CommandExecutor {
    fn new(
        job_type: &'static str,
        request: fn(&str) -> Result<Request, String>,
        shim: ShimCommand,
        host: &Host,
    ) -> Self {
        let containment = shim.containment.clone();
        let keeper = Keeper { containment, clock: host.clock.clone(), spawn: host.spawn.clone() };
        CommandExecutor { job_type, request, shim: Arc::new(shim), keeper }
    }
}

impl Executor for CommandExecutor {
    fn job_types(&self) -> Vec<String> {
        vec![self.job_type.to_owned()]
    }

    fn execute(&self, context: ExecutionContext) -> Task<Outcome> {
        match (self.request)(&context.assignment.payload) {
            Ok(request) => {
                let request = with_facts(request, &self.shim, &context);
                Box::pin(run(self.shim.clone(), self.keeper.clone(), request, context))
            }
            Err(error) => Box::pin(std::future::ready(Outcome::failed_for_good(error))),
        }
    }

    fn stop_time_max(&self, assignment: &Assignment) -> Duration {
        let request = (self.request)(&assignment.payload);
        let longest = |request: Request| request.kill_grace + limits::SHIM_ANSWER_MAX + limits::KILL_TIME_MAX;
        request.map_or(Duration::ZERO, longest)
    }
}

/// Completes the environment: the variables of all commands, of the job, and the facts about the run.
fn with_facts(mut request: Request, shim: &ShimCommand, context: &ExecutionContext) -> Request {
    let assignment = &context.assignment;
    let facts = [
        ("PUNCTUAL_JOB_ID", assignment.execution.occurrence.job.to_string()),
        ("PUNCTUAL_EXECUTION_ID", assignment.execution.to_string()),
        ("PUNCTUAL_ATTEMPT", assignment.execution.attempt.to_string()),
        ("PUNCTUAL_SCHEDULED_TIME", assignment.scheduled_time.to_string()),
        ("PUNCTUAL_IDEMPOTENCY_KEY", assignment.idempotency_key().to_string()),
        ("PUNCTUAL_DEADLINE", context.deadline.to_string()),
    ];
    request.limits.result_overflow = assignment.result_overflow;
    request.enclosure = shim.containment.next(&assignment.queue);
    let added = std::mem::replace(&mut request.env, shim.env.clone());
    request.env.extend(request.enclosure.sandbox.env());
    request.env.extend(added);
    request.env.extend(facts.map(|(name, value)| (name.to_owned(), value)));
    // A job that sets its own trace keeps it.
    if let Some(context) = assignment.trace_context().filter(|_| !request.env.contains_key(TRACEPARENT)) {
        request.env.insert(TRACEPARENT.to_owned(), context.traceparent());
        if let Some(state) = context.tracestate() {
            request.env.insert(TRACESTATE.to_owned(), state.to_owned());
        }
    }
    if let Some(checkpoint) = &assignment.checkpoint {
        request.env.insert("PUNCTUAL_CHECKPOINT".to_owned(), checkpoint.as_json().to_owned());
    }
    request
}

async fn run(shim: Arc<ShimCommand>, keeper: Keeper, request: Request, context: ExecutionContext) -> Outcome {
    let started = match Shim::start(&shim, &keeper, &request).await {
        Ok(started) => started,
        Err(error) => return failed(format!("the shim of the command cannot be started: {error}")),
    };
    let Shim { mut process, stdin, stdout, watched } = started;
    let told = {
        let told = pin!(listen(stdout, &context));
        let stopped = pin!(stop(stdin, &watched, request.kill_grace, &context));
        match select(told, stopped).await {
            Either::Left((told, _)) => told,
            Either::Right((never, _)) => match never {},
        }
    };
    if told.is_err() {
        // Whatever happened to the shim: without its report the command must not continue.
        let _ = select(pin!(process.wait()), pin!(watched.kill_with_shim())).await;
    }
    // The last frame is the shim's last act; waiting here leaves no zombie.
    let status = process.wait().await;
    watched.over().await;
    match told {
        Ok((ended, spool)) => {
            // Other ends may be the worker's doing: it kills a command that stops its shim.
            if !ended.was_stopped && ended.how == (How::Exited { code: 0 }) {
                context.stop.ended_before();
            }
            match outcome::outcome(ended, request.limits) {
                CommandOutcome::Final(outcome) => outcome,
                CommandOutcome::LargeResult => spool.store(&context).await,
            }
        }
        Err(error) => {
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            failed(outcome::without_shim(&status, &error, &request.enclosure))
        }
    }
}

fn failed(error: String) -> Outcome {
    Outcome::failed(error)
}

/// A running shim.
struct Shim {
    process: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    watched: ContainedCommand,
}

impl Shim {
    async fn start(shim: &ShimCommand, keeper: &Keeper, request: &Request) -> io::Result<Self> {
        let mut process = Command::new(&shim.program)
            .args(&shim.args)
            // The server's environment may contain secrets, and the shim needs none of it.
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Terminal signals are for the server, which stops its commands in its own order.
            .process_group(0)
            .spawn()?;
        let (Some(mut stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::Error::other("its pipes are missing"));
        };
        let Some(watched) = keeper.watch(request.enclosure.clone(), &process) else {
            return Err(io::Error::other("it has no process id"));
        };
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stdin.write_all(&line).await?;
        Ok(Shim { process, stdin, stdout, watched })
    }
}

/// Reads the shim's frames until the command has ended. Lines wait for room in the log, and so do the shim
/// and the command that writes them.
async fn listen(stdout: ChildStdout, context: &ExecutionContext) -> io::Result<(CommandEnd, ResultSpool)> {
    let mut stdout = BufReader::new(stdout);
    let mut spool = ResultSpool::default();
    loop {
        let (stream, message) = match read_frame(&mut stdout).await? {
            Frame::Stdout(line) => (LogStream::Stdout, line),
            Frame::Stderr(line) => (LogStream::Stderr, line),
            Frame::Note(line) => (LogStream::Log, line),
            Frame::Noted(note) => match keep(note, context).await {
                Ok(()) => continue,
                Err(problem) => (LogStream::Log, problem),
            },
            Frame::ResultBegins(part) => {
                spool.begin(&part);
                continue;
            }
            Frame::ResultPart(part) => {
                spool.add(&part);
                continue;
            }
            Frame::Ended(ended) => return Ok((ended, spool)),
        };
        context.logs.append(stream, message).await;
    }
}

/// Passes on the command's notes. A checkpoint is stored before the next frame is read, so that the end of
/// the command is reported after it.
async fn keep(note: CommandNote, context: &ExecutionContext) -> Result<(), String> {
    if let Some(progress) = note.progress {
        context.notes.progress(progress);
    }
    let Some(document) = note.checkpoint else { return Ok(()) };
    let checkpoint = Checkpoint::new(document).map_err(|error| error.to_string())?;
    context.notes.checkpoint(checkpoint).await.map_err(|error| error.to_string())
}

async fn read_frame(stdout: &mut BufReader<ChildStdout>) -> io::Result<Frame> {
    let mut head = [0; FRAME_HEAD_BYTES];
    stdout.read_exact(&mut head).await?;
    let (kind, length) = Frame::read_head(head).map_err(io::Error::other)?;
    let mut content = vec![0; length];
    stdout.read_exact(&mut content).await?;
    Frame::read(kind, content).map_err(io::Error::other)
}

/// Tells the shim when to stop, and ends the command without it if the shim does not answer. A shim that is
/// gone has closed its other pipe.
async fn stop(
    mut stdin: ChildStdin,
    watched: &ContainedCommand,
    kill_grace: Duration,
    context: &ExecutionContext,
) -> Infallible {
    let at_once = context.stop.requested(Stop::AtOnce);
    if let Either::Right((_, at_once)) = select(at_once, context.stop.requested(Stop::Politely)).await {
        let _ = stdin.write_all(&[STOP_POLITELY]).await;
        watched.wake_shim();
        // After the grace period the shim kills the tree, unless its command keeps stopping it.
        let unanswered = pin!(watched.sleep(kill_grace + limits::SHIM_ANSWER_MAX));
        if let Either::Right(_) = select(at_once, unanswered).await {
            let note = "the shim of the command did not answer: the worker kills the command".to_owned();
            join(kill(stdin, watched), context.logs.append(LogStream::Log, note)).await;
            return std::future::pending().await;
        }
    }
    kill(stdin, watched).await;
    std::future::pending().await
}

async fn kill(mut stdin: ChildStdin, watched: &ContainedCommand) {
    let _ = stdin.write_all(&[STOP_AT_ONCE]).await;
    watched.kill_with_shim().await;
}
