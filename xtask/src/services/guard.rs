//! The process that owns the servers. It starts them, says where they are, and ends them when its standard input does:
//! that is the lifeline to whoever wanted them.

use super::server::{Children, Event, Plan, carry_out};
use super::site::Site;
use super::{Ready, ReadyServer, Service, mysql, postgres, programs};
use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Until the last server is ready. Seconds are usual; a busy machine with a slow disk takes longer.
const START_TIME_MAX: Duration = Duration::from_secs(180);
/// For all servers to end by themselves, before they are killed.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);

/// Starts the services, prints one line of JSON once they are ready, and returns when they are gone.
pub fn hold(root: &Path, services: &[Service]) -> Result<ExitCode> {
    let scratch = tempfile::Builder::new().prefix("punctual-services-").tempdir()?;
    let mut plans = Vec::new();
    for service in services {
        plans.push(plan(root, *service, &scratch)?);
    }
    let (sender, events) = channel();
    watch_lifeline(sender.clone());
    let outcome = hold_plans(plans, &sender, &events, |servers| {
        let ready = Ready { folder: scratch.path().to_owned(), servers };
        let mut output = std::io::stdout().lock();
        writeln!(output, "{}", serde_json::to_string(&ready)?)?;
        Ok(output.flush()?)
    });
    scratch.close().context("remove what the servers have left")?;
    outcome?;
    Ok(ExitCode::SUCCESS)
}

fn plan(root: &Path, service: Service, scratch: &TempDir) -> Result<Plan> {
    let programs = programs::find(root, service)
        .with_context(|| format!("{} was there and is no more", service.word()))?;
    let site = Site::new(service, scratch.path())?;
    match service {
        Service::Postgres => postgres::plan(&programs, &site),
        Service::MariaDb => mysql::plan_mariadb(&programs, &site),
        Service::MySql => mysql::plan_mysql(&programs, &site),
    }
}

fn watch_lifeline(events: Sender<Event>) {
    std::thread::spawn(move || {
        // Nothing is ever written to it; an error says the same as its end.
        let _ = std::io::stdin().lock().read(&mut [0]);
        let _ = events.send(Event::LifelineCut);
    });
}

/// Runs servers until the lifeline is cut. Whatever happens, none of them is left on return.
fn hold_plans(
    plans: Vec<Plan>,
    sender: &Sender<Event>,
    events: &Receiver<Event>,
    tell: impl FnOnce(Vec<ReadyServer>) -> Result<()>,
) -> Result<()> {
    let children = Arc::new(Children::default());
    let mut open: Vec<Service> = plans.iter().map(|plan| plan.service).collect();
    for plan in plans {
        carry_out(plan, children.clone(), sender.clone());
    }
    let served = serve(&mut open, events, tell);
    children.stop();
    let ended = await_ends(&mut open, events).or_else(|_| {
        children.kill();
        await_ends(&mut open, events)
    });
    served.and(ended)
}

/// Waits until all are ready, tells so, and waits for the lifeline to be cut. Takes those out of `open` that end.
fn serve(
    open: &mut Vec<Service>,
    events: &Receiver<Event>,
    tell: impl FnOnce(Vec<ReadyServer>) -> Result<()>,
) -> Result<()> {
    let order = open.clone();
    let mut ready: Vec<(Service, ReadyServer)> = Vec::new();
    let deadline = Instant::now() + START_TIME_MAX;
    while ready.len() < order.len() {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Ready { service, url, took }) => {
                let started_ms = u64::try_from(took.as_millis())?;
                ready.push((
                    service,
                    ReadyServer { variable: service.variable().to_owned(), url, started_ms },
                ));
            }
            Ok(Event::Ended { service, why }) => {
                open.retain(|other| *other != service);
                return Err(why);
            }
            Ok(Event::LifelineCut) => return Ok(()),
            Err(_) => bail!("not all of {order:?} are ready after {} s", START_TIME_MAX.as_secs()),
        }
    }
    ready.sort_by_key(|(service, _)| order.iter().position(|other| other == service));
    tell(ready.into_iter().map(|(_, server)| server).collect())?;
    let mut outcome = Ok(());
    loop {
        match events.recv()? {
            Event::LifelineCut => return outcome,
            Event::Ended { service, why } => {
                open.retain(|other| *other != service);
                // The tests will say that it is gone; only we can say why.
                let _ = writeln!(std::io::stderr(), "while it was in use, {why:#}");
                outcome = Err(why);
            }
            Event::Ready { .. } => {}
        }
    }
}

fn await_ends(open: &mut Vec<Service>, events: &Receiver<Event>) -> Result<()> {
    let deadline = Instant::now() + STOP_TIME_MAX;
    while !open.is_empty() {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Ended { service, .. }) => open.retain(|other| *other != service),
            Ok(_) => {}
            Err(_) => bail!("{open:?} did not end within {} s", STOP_TIME_MAX.as_secs()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Signal;
    use std::process::{Command, Stdio};

    /// A server that is a script, and says `now ready` when it is.
    fn script(service: Service, text: &str) -> Plan {
        let mut server = Command::new("sh");
        server.args(["-c", text, "sh"]).stdin(Stdio::null());
        let url = |port| format!("test://127.0.0.1:{port}");
        Plan { service, setup: vec![], server, ready_line: "now ready", stop_signal: Signal::TERM, url }
    }

    /// Holds servers, cuts the lifeline when they are ready, and returns where they were.
    fn held(plans: Vec<Plan>) -> Result<Vec<String>> {
        let (sender, events) = channel();
        let mut urls = Vec::new();
        hold_plans(plans, &sender, &events, |servers| {
            urls.extend(servers.into_iter().map(|server| server.url));
            Ok(sender.send(Event::LifelineCut)?)
        })?;
        Ok(urls)
    }

    /// What was killed in a group ends a moment after the one that is waited for.
    #[expect(clippy::disallowed_methods, reason = "nothing tells of the end of a stranger's child")]
    fn ends(pid_file: &Path) -> bool {
        (0..1_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            !is_running(pid_file)
        })
    }

    fn is_running(pid_file: &Path) -> bool {
        let pid = std::fs::read_to_string(pid_file).unwrap();
        let status = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("status"));
        // Somebody else may take their time to bury it.
        status.is_ok_and(|status| !status.contains("State:\tZ"))
    }

    #[test]
    fn servers_are_told_in_the_order_in_which_they_were_asked_for() {
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
    fn what_a_server_has_started_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        let text = format!("sleep 1000 & echo $! > {}; echo now ready; wait", pid_file.display());
        held(vec![script(Service::Postgres, &text)]).unwrap();
        assert!(ends(&pid_file));
    }

    #[test]
    fn a_server_that_does_not_start_shows_what_it_said_and_ends_the_others() {
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
    fn a_failed_setup_is_named() {
        let mut plan = script(Service::Postgres, "echo now ready");
        let mut setup = Command::new("sh");
        setup.args(["-c", "echo no space left; false"]);
        plan.setup.push(setup);
        let error = format!("{:#}", held(vec![plan]).unwrap_err());
        assert!(error.contains("no space left"), "{error}");
    }

    #[test]
    fn another_port_is_tried_when_someone_was_quicker() {
        let folder = tempfile::tempdir().unwrap();
        let ports = folder.path().join("ports");
        let text = format!(
            "for last; do :; done; echo $last >> {0}; [ $(wc -l < {0}) = 3 ] && echo now ready && exec sleep 1000; \
             echo Address already in use; exit 1",
            ports.display()
        );
        let urls = held(vec![script(Service::Postgres, &text)]).unwrap();
        let ports = std::fs::read_to_string(ports).unwrap();
        let last = ports.lines().nth(2).unwrap().trim_start_matches("--port=");
        assert_eq!(urls, [format!("test://127.0.0.1:{last}")]);
    }

    #[test]
    fn a_server_that_ends_while_it_is_used_is_reported() {
        let (sender, events) = channel();
        let plan = script(Service::Postgres, "echo now ready; echo out of luck; exit 1");
        let (forward, forwarded) = channel();
        // The lifeline is cut only behind the end, so that the end is seen first.
        let relay = std::thread::spawn(move || {
            for event in events {
                let is_end = matches!(event, Event::Ended { .. });
                forward.send(event).unwrap();
                if is_end {
                    return forward.send(Event::LifelineCut).unwrap();
                }
            }
        });
        let error = hold_plans(vec![plan], &sender, &forwarded, |_| Ok(())).unwrap_err();
        relay.join().unwrap();
        assert!(format!("{error:#}").contains("out of luck"));
    }
}
