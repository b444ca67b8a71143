//! The process that owns the servers. It starts them, reports their addresses, and ends them when its
//! standard input closes, which is the lifeline to the caller. The caller can also send commands over it:
//! kill or stop a server, start it again, or run a statement on it.

use super::children::{Children, kill_all_in};
use super::server::{ServerNode, ServiceEvent, ServicePlan, StartedServer, ask, begin, start_again};
use super::site::ServerSite;
use super::{
    Ready, ReadyServer, Service, brokers, coordination, galera, mysql, oidc, postgres, programs, receivers,
    redis, s3,
};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Pid;
use serde::Serialize;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The time limit until the last server is ready. Seconds are usual; a busy machine with a slow disk takes
/// longer.
const START_TIME_MAX: Duration = Duration::from_secs(180);
/// The time limit for all servers to end by themselves before they are killed.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);

/// Starts the services, prints one line of JSON once they are ready, and returns when they have ended. Each
/// command, `kill NAME`, `stop NAME`, `start NAME` or `sql NAME STATEMENT` on its own line, is answered with
/// a line of JSON once it has been carried out.
pub fn hold(root: &Path, services: &[Service]) -> Result<ExitCode> {
    let scratch = tempfile::Builder::new().prefix("punctual-services-").tempdir()?;
    let mut plans = Vec::new();
    for service in services {
        plans.push(plan(root, *service, scratch.path())?);
    }
    let (sender, events) = channel();
    watch_lifeline(sender.clone());
    let outcome = hold_plans(plans, &sender, &events, |word| match word {
        GuardMessage::Ready(servers) => say(&Ready { folder: scratch.path().to_owned(), servers }),
        GuardMessage::Done(answer) => say(&answer),
    });
    scratch.close().context("remove the data of the servers")?;
    outcome?;
    Ok(ExitCode::SUCCESS)
}

fn say(word: &impl Serialize) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(word)?)?;
    Ok(output.flush()?)
}

fn plan(root: &Path, service: Service, scratch: &Path) -> Result<ServicePlan> {
    // A test that starts its own servers may be the first one to need these programs.
    let programs = programs::find_or_unpack(root, service)?;
    let (root, scratch) = (root.to_owned(), scratch.to_owned());
    let nodes = move |tried| {
        let name = if tried == 0 { service.word().to_owned() } else { format!("{}-{tried}", service.word()) };
        let site = ServerSite::new(service, &scratch, &name)?;
        match service {
            Service::Postgres => postgres::alone(&programs, &site),
            Service::MariaDb => mysql::mariadb(&programs, &site),
            Service::MariaDbSecured => mysql::mariadb_secured(&programs, &site),
            Service::MySql => mysql::mysql(&programs, &site),
            Service::Replica => postgres::replica(&programs, &site),
            Service::Galera => galera::cluster(&programs, &site),
            Service::Redis => redis::alone(&programs, &site),
            Service::Etcd => coordination::etcd(&programs, &site),
            Service::ZooKeeper => coordination::zookeeper(&programs, &site),
            Service::EtcdCluster => coordination::etcd_cluster(&programs, &site),
            Service::ZooKeeperCluster => coordination::zookeeper_cluster(&programs, &site),
            Service::RedisSecured => redis::secured(&programs, &site),
            Service::RedisSentinel => redis::sentinel(&programs, &site),
            Service::RedisCluster => redis::cluster(&programs, &site),
            Service::EtcdSecured => coordination::etcd_secured(&programs, &site),
            Service::Nats => brokers::nats(&programs, &site),
            Service::NatsSecured => brokers::nats_secured(&programs, &site),
            Service::NatsCluster => brokers::nats_cluster(&programs, &site),
            Service::RabbitMq => brokers::rabbitmq(&programs, &site),
            Service::RabbitMqSecured => brokers::rabbitmq_secured(&programs, &site),
            Service::Oidc => oidc::provider(&root, &programs, &site),
            Service::Receivers => receivers::receivers(&root, &programs, &site),
            Service::S3 => s3::store(&root, &programs, &site),
        }
    };
    Ok(ServicePlan { service, nodes: Box::new(nodes) })
}

fn watch_lifeline(events: Sender<ServiceEvent>) {
    std::thread::spawn(move || {
        // A read error means the same as the end of input.
        for order in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = events.send(ServiceEvent::Ordered(order));
        }
        let _ = events.send(ServiceEvent::LifelineCut);
    });
}

/// A message to the caller.
enum GuardMessage {
    Ready(Vec<ReadyServer>),
    Done(CommandAnswer),
}

/// The result of a command.
#[derive(Serialize)]
struct CommandAnswer {
    name: String,
    /// For a server that was started.
    process: Option<i32>,
    /// The output of a statement.
    said: Option<String>,
    error: Option<String>,
}

impl CommandAnswer {
    fn done(name: &str) -> Self {
        CommandAnswer { name: name.to_owned(), process: None, said: None, error: None }
    }

    fn failed(name: &str, error: impl ToString) -> Self {
        CommandAnswer { error: Some(error.to_string()), ..CommandAnswer::done(name) }
    }
}

/// Runs servers until the lifeline closes. Whatever happens, none of them is left on return.
fn hold_plans(
    plans: Vec<ServicePlan>,
    sender: &Sender<ServiceEvent>,
    events: &Receiver<ServiceEvent>,
    send: impl FnMut(GuardMessage) -> Result<()>,
) -> Result<()> {
    let children = Arc::new(Children::default());
    let order: Vec<Service> = plans.iter().map(|plan| plan.service).collect();
    for plan in plans {
        begin(plan, children.clone(), sender.clone());
    }
    let mut guard =
        ServerGuard { children: children.clone(), sender, servers: vec![], send, outcome: Ok(()) };
    let served = guard.serve(&order, events);
    children.stop_all();
    if !children.have_ended_within(STOP_TIME_MAX) {
        children.kill_all();
        ensure!(
            children.have_ended_within(STOP_TIME_MAX),
            "some servers did not stop within {} s",
            STOP_TIME_MAX.as_secs()
        );
    }
    served.and(guard.outcome)
}

struct ServerGuard<'a, T> {
    children: Arc<Children>,
    sender: &'a Sender<ServiceEvent>,
    servers: Vec<GuardedServer>,
    send: T,
    /// An error if a server has ended without a command.
    outcome: Result<()>,
}

/// A server that has been ready.
struct GuardedServer {
    name: &'static str,
    /// The pid of its latest process.
    id: Pid,
    state: GuardedState,
}

enum GuardedState {
    Running(StartedServer),
    /// Killed or stopped by a command, and not ended yet.
    Dying(Box<ServerNode>),
    Gone(Box<ServerNode>),
    /// Ended without a command, or starting again.
    Absent,
}

impl<T: FnMut(GuardMessage) -> Result<()>> ServerGuard<'_, T> {
    /// Waits until all are ready, reports it, and carries out commands until the lifeline closes.
    fn serve(&mut self, order: &[Service], events: &Receiver<ServiceEvent>) -> Result<()> {
        let Some(mut begun) = await_all(order, events)? else { return Ok(()) };
        begun.sort_by_key(|(service, _)| order.iter().position(|other| other == service));
        let mut ready = Vec::new();
        let flat =
            begun.into_iter().flat_map(|(service, all)| all.into_iter().map(move |one| (service, one)));
        for (service, started) in flat {
            ready.push(ReadyServer {
                name: started.node.name.to_owned(),
                service: service.word().to_owned(),
                url: started.node.url.clone(),
                process: started.id.as_raw_nonzero().get(),
                started_ms: u64::try_from(started.took.as_millis())?,
            });
            let (name, id) = (started.node.name, started.id);
            self.servers.push(GuardedServer { name, id, state: GuardedState::Running(started) });
        }
        (self.send)(GuardMessage::Ready(ready))?;
        loop {
            match events.recv()? {
                ServiceEvent::LifelineCut => return Ok(()),
                ServiceEvent::Ordered(order) => self.obey(&order)?,
                ServiceEvent::Ended { id, why } => self.record_end(id, why)?,
                ServiceEvent::StartedAgain { name, outcome } => self.welcome(name, outcome)?,
                ServiceEvent::Answered { name, outcome } => self.send(match outcome {
                    Ok(said) => CommandAnswer { said: Some(said), ..CommandAnswer::done(name) },
                    Err(error) => CommandAnswer::failed(name, format!("{error:#}")),
                })?,
                ServiceEvent::Ready { .. } => {}
            }
        }
    }

    fn obey(&mut self, order: &str) -> Result<()> {
        let mut words = order.trim().splitn(3, ' ');
        let [verb, name, statement] = [(); 3].map(|()| words.next().unwrap_or_default());
        let Some(server) = self.servers.iter_mut().find(|server| server.name == name) else {
            return self.send(CommandAnswer::failed(name, format!("there is no server {name}")));
        };
        match (verb, std::mem::replace(&mut server.state, GuardedState::Absent)) {
            ("kill", GuardedState::Running(StartedServer { node, id, .. })) => {
                self.children.kill(id);
                kill_all_in(&node.folder)?;
                server.state = GuardedState::Dying(node);
                Ok(())
            }
            ("stop", GuardedState::Running(StartedServer { node, id, .. })) => {
                self.children.stop(id, node.restart_signal);
                server.state = GuardedState::Dying(node);
                Ok(())
            }
            ("start", GuardedState::Gone(node)) => {
                start_again(node, self.children.clone(), self.sender.clone());
                Ok(())
            }
            ("sql", GuardedState::Running(started)) => {
                ask(&started.node, statement, self.children.clone(), self.sender.clone());
                server.state = GuardedState::Running(started);
                Ok(())
            }
            (_, state) => {
                server.state = state;
                let error =
                    "`kill`, `stop` and `sql` need a running server, `start` one that was stopped this way";
                self.send(CommandAnswer::failed(name, error))
            }
        }
    }

    fn record_end(&mut self, id: Pid, why: anyhow::Error) -> Result<()> {
        // Other processes were abandoned when a port was taken.
        let Some(server) = self.servers.iter_mut().find(|server| server.id == id) else { return Ok(()) };
        match std::mem::replace(&mut server.state, GuardedState::Absent) {
            GuardedState::Dying(node) => {
                let name = node.name;
                server.state = GuardedState::Gone(node);
                self.send(CommandAnswer::done(name))
            }
            _ => {
                // The tests will report that it is gone; only the guard knows why.
                let _ = writeln!(std::io::stderr(), "while it was in use, {why:#}");
                self.outcome = Err(why);
                Ok(())
            }
        }
    }

    fn welcome(&mut self, name: &'static str, outcome: Result<StartedServer>) -> Result<()> {
        match (self.servers.iter_mut().find(|server| server.name == name), outcome) {
            (Some(server), Ok(started)) => {
                let process = started.id.as_raw_nonzero().get();
                (server.id, server.state) = (started.id, GuardedState::Running(started));
                self.send(CommandAnswer { process: Some(process), ..CommandAnswer::done(name) })
            }
            (_, Err(error)) => self.send(CommandAnswer::failed(name, format!("{error:#}"))),
            (None, Ok(_)) => Ok(()),
        }
    }

    fn send(&mut self, answer: CommandAnswer) -> Result<()> {
        (self.send)(GuardMessage::Done(answer))
    }
}

type ReadyServices = Vec<(Service, Vec<StartedServer>)>;

/// Returns `None` if the lifeline closed before all were ready.
fn await_all(order: &[Service], events: &Receiver<ServiceEvent>) -> Result<Option<ReadyServices>> {
    let (mut ready, mut ended) = (ReadyServices::new(), Vec::new());
    let deadline = Instant::now() + START_TIME_MAX;
    while ready.len() < order.len() {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(ServiceEvent::Ready { service, outcome }) => ready.push((service, outcome?)),
            Ok(ServiceEvent::Ended { id, why }) => ended.push((id, why)),
            Ok(ServiceEvent::LifelineCut) => return Ok(None),
            Ok(
                ServiceEvent::Ordered(_) | ServiceEvent::StartedAgain { .. } | ServiceEvent::Answered { .. },
            ) => {}
            Err(_) => bail!("not all of {order:?} are ready after {} s", START_TIME_MAX.as_secs()),
        }
        // A process whose service is not ready may have been abandoned because its port was taken.
        let is_ready = |id| ready.iter().flat_map(|(_, all)| all).any(|started| started.id == id);
        if let Some(at) = ended.iter().position(|(id, _)| is_ready(*id)) {
            return Err(ended.remove(at).1);
        }
    }
    Ok(Some(ready))
}

#[cfg(test)]
mod tests {
    use super::super::server::free_ports;
    use super::*;
    use rustix::process::Signal;
    use std::process::{Command, Stdio};

    /// A service with one server that is a script and prints `now ready`.
    fn script(service: Service, text: &str) -> ServicePlan {
        scripts(service, &[(service.word(), text)])
    }

    /// A service with several of them. Each gets the port to listen on as its argument.
    fn scripts(service: Service, servers: &[(&'static str, &str)]) -> ServicePlan {
        let servers: Vec<_> = servers.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        let node = |name, text: &str| {
            let [port] = free_ports()?;
            let mut server = Command::new("sh");
            server.args(["-c", text, "sh", &port.to_string()]).stdin(Stdio::null());
            let (url, folder) = (format!("test://127.0.0.1:{port}"), Path::new("/nonexistent").to_owned());
            let (setup, ready_lines) = (vec![], &["now ready"][..]);
            let (stop_signal, restart_signal) = (Signal::TERM, Signal::TERM);
            let client = Box::new(|statement: &str| {
                let mut echo = Command::new("echo");
                echo.arg(statement);
                echo
            });
            let server_again = None;
            Ok(ServerNode {
                name,
                setup,
                server,
                server_again,
                ready_lines,
                stop_signal,
                restart_signal,
                url,
                folder,
                client,
            })
        };
        let nodes = move |_| servers.iter().map(|(name, text)| node(*name, text)).collect();
        ServicePlan { service, nodes: Box::new(nodes) }
    }

    /// Holds servers, closes the lifeline when they are ready, and returns their addresses.
    fn held(plans: Vec<ServicePlan>) -> Result<Vec<String>> {
        let (sender, events) = channel();
        let mut urls = Vec::new();
        hold_plans(plans, &sender, &events, |word| {
            let GuardMessage::Ready(servers) = word else { bail!("nothing was ordered") };
            urls.extend(servers.into_iter().map(|server| server.url));
            Ok(sender.send(ServiceEvent::LifelineCut)?)
        })?;
        Ok(urls)
    }

    /// Other processes of a killed group end a moment after the one that is waited for.
    #[expect(
        clippy::disallowed_methods,
        reason = "no signal reports the end of a process that is not our child"
    )]
    fn ends(pid_file: &Path) -> bool {
        (0..1_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            !is_running(pid_file)
        })
    }

    fn is_running(pid_file: &Path) -> bool {
        let pid = std::fs::read_to_string(pid_file).unwrap();
        let status = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("status"));
        // Another process may be slow to reap it.
        status.is_ok_and(|status| !status.contains("State:\tZ"))
    }

    #[test]
    fn servers_are_listed_in_the_requested_order() {
        let folder = tempfile::tempdir().unwrap();
        let gate = folder.path().join("gate").display().to_string();
        let first = format!("mkfifo {gate}; echo made; read line < {gate}; echo now ready; exec sleep 1000");
        let second = format!(
            "until [ -p {gate} ]; do sleep 0.01; done; echo now ready; echo > {gate}; exec sleep 1000"
        );
        let urls = held(vec![script(Service::MySql, &first), script(Service::Postgres, &second)]).unwrap();
        assert_eq!(urls.len(), 2);
        assert_ne!(urls[0], urls[1]);
    }

    #[test]
    fn processes_of_a_server_end_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        let text = format!("sleep 1000 & echo $! > {}; echo now ready; wait", pid_file.display());
        held(vec![script(Service::Postgres, &text)]).unwrap();
        assert!(ends(&pid_file));
    }

    #[test]
    fn a_server_that_does_not_start_shows_its_output_and_ends_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        let waits = format!("echo $$ > {}; exec sleep 1000", pid_file.display());
        let fails =
            format!("until [ -s {} ]; do sleep 0.01; done; echo no memory; exit 3", pid_file.display());
        let plans = vec![script(Service::Postgres, &waits), script(Service::MariaDb, &fails)];
        let error = format!("{:#}", held(plans).unwrap_err());
        assert!(error.contains("mariadb ended: exit status: 3\n  no memory"), "{error}");
        assert!(ends(&pid_file));
    }

    #[test]
    fn a_failed_setup_is_reported() {
        let nodes = |tried| {
            let mut nodes = (script(Service::Postgres, "echo now ready").nodes)(tried)?;
            let mut setup = Command::new("sh");
            setup.args(["-c", "echo no space left; false"]);
            nodes[0].setup.push(setup);
            Ok(nodes)
        };
        let plan = ServicePlan { service: Service::Postgres, nodes: Box::new(nodes) };
        let error = format!("{:#}", held(vec![plan]).unwrap_err());
        assert!(error.contains("no space left"), "{error}");
    }

    #[test]
    fn other_ports_are_tried_when_one_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let ports = folder.path().join("ports");
        let first = "echo now ready; exec sleep 1000";
        let second = format!(
            "echo $1 >> {0}; [ $(wc -l < {0}) = 3 ] && echo now ready && exec sleep 1000; \
             echo Address already in use; exit 1",
            ports.display()
        );
        let plan = scripts(Service::Replica, &[("first", first), ("second", &second)]);
        let urls = held(vec![plan]).unwrap();
        let ports = std::fs::read_to_string(ports).unwrap();
        assert_eq!(urls[1], format!("test://127.0.0.1:{}", ports.lines().nth(2).unwrap()));
        assert_eq!(urls.len(), 2);
    }

    #[test]
    fn servers_of_a_cluster_start_one_after_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file").display().to_string();
        let first = format!("touch {file}; echo now ready; exec sleep 1000");
        let second = format!("[ -f {file} ] && echo now ready && exec sleep 1000");
        let plan = scripts(Service::Galera, &[("first", &first), ("second", &second)]);
        assert_eq!(held(vec![plan]).unwrap().len(), 2);
    }

    #[test]
    fn a_server_can_be_killed_and_started_again_and_the_others_stay() {
        let (sender, events) = channel();
        let run = "echo now ready; exec sleep 1000";
        let plan = scripts(Service::Galera, &[("first", run), ("second", run)]);
        let (mut processes, mut answers) = (Vec::new(), Vec::new());
        let order = |text: &str| Ok(sender.send(ServiceEvent::Ordered(text.to_owned()))?);
        hold_plans(vec![plan], &sender, &events, |word| match word {
            GuardMessage::Ready(servers) => {
                processes.extend(servers.iter().map(|server| server.process));
                order("kill second")
            }
            GuardMessage::Done(answer) => {
                answers.push((answer.name, answer.process, answer.said, answer.error.is_some()));
                match answers.len() {
                    1 => order("kill second"),
                    2 => order("start second"),
                    3 => order("kill missing"),
                    4 => order("sql first SELECT 1 + 1"),
                    5 => order("stop first"),
                    6 => order("start first"),
                    _ => Ok(sender.send(ServiceEvent::LifelineCut)?),
                }
            }
        })
        .unwrap();
        let [killed, twice, started, missing, asked, stopped, restarted] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert_eq!(*killed, ("second".into(), None, None, false));
        assert_eq!(*twice, ("second".into(), None, None, true));
        assert!(started.1.is_some_and(|process| process != processes[1]), "{started:?}");
        assert_eq!(*missing, ("missing".into(), None, None, true));
        assert_eq!(*asked, ("first".into(), None, Some("SELECT 1 + 1".into()), false));
        assert_eq!(*stopped, ("first".into(), None, None, false));
        assert!(restarted.1.is_some_and(|process| process != processes[0]), "{restarted:?}");
    }

    #[test]
    fn a_server_that_ends_while_it_is_used_is_reported() {
        let (sender, events) = channel();
        let plan = script(Service::Postgres, "echo now ready; echo out of luck; exit 1");
        let (forward, forwarded) = channel();
        // The lifeline closes only after both the start and the end, in whichever order they come.
        let relay = std::thread::spawn(move || {
            for event in events.iter().take(2) {
                forward.send(event).unwrap();
            }
            forward.send(ServiceEvent::LifelineCut).unwrap();
        });
        let error = hold_plans(vec![plan], &sender, &forwarded, |_| Ok(())).unwrap_err();
        relay.join().unwrap();
        assert!(format!("{error:#}").contains("out of luck"));
    }
}
