//! `punctual doctor`: checks everything that a server needs and says how to fix problems. Changes nothing,
//! and works with a running server, a stopped one, and none at all.

mod database;
mod files;
mod finding;
mod isolation;
mod machine;
mod missed;
mod server;

use files::ServerPresence;
use finding::{DoctorReport, Finding};
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::OutputArgs;
use punctual_config::{Flags, ServeSettings, Surroundings};
use punctual_node::store::{StoreArgs, StorePlace};

/// Exit code 0 says that nothing failed, although there may be warnings; 1 that something did.
#[derive(clap::Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: DoctorArgs) -> anyhow::Result<Exit> {
    let report = DoctorReport::new(findings(&args).await);
    args.output.print(&report, DoctorReport::table)?;
    Ok(if report.ok { Exit::Done } else { Exit::Failed })
}

async fn findings(args: &DoctorArgs) -> Vec<Finding> {
    let connect = &args.connect;
    let (around, mut findings) = surroundings(connect);
    let settings = match around.read(&Flags::<ServeSettings>::default()).and_then(|settings| {
        settings.check()?;
        Ok(settings)
    }) {
        Ok(settings) => settings,
        Err(error) => {
            findings.push(Finding::failed(
                "configuration",
                error.message,
                "fix it; see `punctual config show`",
            ));
            defaults()
        }
    };
    findings.extend(certificate(&around, &settings));
    let connection = match connect.connection_within(&around) {
        Ok(connection) => connection,
        Err(error) => {
            findings.push(Finding::failed(
                "connection",
                format!("{error:#}"),
                "fix it; see `punctual config show`",
            ));
            findings.extend(machine::check(&settings, &[], vec![]).await);
            return findings;
        }
    };
    let place = match args.store.place(&around, connection.data_dir.path()) {
        Ok(place) => place,
        Err(error) => {
            findings.push(Finding::failed("store", error.message, "fix it; see `punctual config show`"));
            StorePlace::Sqlite(connection.data_dir.path().to_owned())
        }
    };
    let (data_dir, is_embedded) = (connection.data_dir.clone(), place.is_embedded());
    let looked = tokio::task::spawn_blocking(move || match is_embedded {
        true => files::check(&data_dir),
        false => files::check_beside_database(&data_dir),
    })
    .await;
    let (of_files, here) = looked.unwrap_or_else(|error| {
        let finding =
            Finding::failed("data directory", format!("the check was interrupted: {error}"), "report this");
        (vec![finding], ServerPresence::Nothing)
    });
    findings.extend(of_files);
    if let StorePlace::Server(server) = &place {
        findings.extend(database::check(server).await);
    }
    let mut hidden = around.secret_files(&Flags::<ServeSettings>::default());
    hidden.push(connection.data_dir.path().to_owned());
    let served = server::served_commands(&connection).await;
    findings.extend(machine::check(&settings, &served, hidden).await);
    findings.extend(server::check(&connection, here).await);
    findings
}

/// The server's certificate, if the configuration names one.
fn certificate(around: &Surroundings, settings: &ServeSettings) -> Option<Finding> {
    let file = settings.listener.tls_cert.as_ref()?;
    Some(match punctual_node::serve::check_certificate(around) {
        Err(error) => Finding::failed("certificate", error.message, "fix it; see `punctual config check`"),
        Ok(None) => Finding::good("certificate", format!("{} can be used", file.display())),
        Ok(Some(warning)) => Finding::warning("certificate", warning, "renew it"),
    })
}

/// The configuration. If it is invalid, the other checks run without it.
fn surroundings(connect: &ConnectArgs) -> (Surroundings, Vec<Finding>) {
    match connect.surroundings() {
        Ok(around) => {
            let found = match &around.file {
                Some(file) => format!("{} is valid", file.path.display()),
                None => "no file; flags, variables and defaults apply".to_owned(),
            };
            (around, vec![Finding::good("configuration", found)])
        }
        Err(error) => {
            let fix = "fix the file; `punctual config template` shows every setting";
            let finding = Finding::failed("configuration", error.message, fix);
            (Surroundings::without_file(), vec![finding])
        }
    }
}

fn defaults() -> ServeSettings {
    let nothing = Surroundings { variables: Default::default(), file: None };
    nothing.read(&Flags::default()).expect("defaults can be used")
}
