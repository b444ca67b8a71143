//! `punctual top`: the activity of a server, live.
//!
//! One task reads from the server (`feed`), one thread reads keys, and one loop passes both to the `model`,
//! from which `view` draws frames.

mod canvas;
mod feed;
mod model;
mod rows;
#[cfg(test)]
mod samples;
mod view;

use anyhow::Context;
use canvas::Screen;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use model::{AfterKey, Model, TopSnapshot, ViewKey};
use punctual_client::{Client, Span};
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::print_raw;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// The size of a frame where there is no terminal.
const PLAIN_SIZE: (u16, u16) = (100, 30);
/// How often the thread that reads keys checks whether it should end.
const KEY_PAUSE: Duration = Duration::from_millis(100);
/// How long a read may take before the server counts as unavailable.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The shortest pause between two reads: the view is for people.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
pub struct TopArgs {
    /// How often to read from the server
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    interval: Span,
    /// Print one frame as text, and exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

fn interval(text: &str) -> Result<Span, String> {
    match text.parse::<Span>() {
        Ok(interval) if interval.get() >= INTERVAL_MIN => Ok(interval),
        Ok(_) => Err("must be at least 100ms".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

pub async fn run(args: TopArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let interval = args.interval.get();
    let mut model = Model::new(client.server(), feed::read(&client).await?);
    if args.once {
        let start = Instant::now();
        tokio::time::sleep(interval).await;
        model.take(feed::read(&client).await?, start.elapsed());
        let (width, height) = crossterm::terminal::size().unwrap_or(PLAIN_SIZE);
        print_raw(&view::plain(&model, width, height))?;
        return Ok(Exit::Done);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let message = "this needs a terminal; `punctual top --once` prints one frame as text".to_owned();
        return Err(CliError { exit: Exit::Misunderstood, message }.into());
    }
    // Before the terminal is taken over: a signal in between would end the program without restoring it.
    let signals = TerminalSignals::listen().context("cannot listen for signals")?;
    let screen = Screen::take_over().context("cannot use the terminal")?;
    // It reads again anyway, and must not write over the view.
    let client = client.without_retries();
    show(screen, model, Sources { client, interval, signals }).await?;
    Ok(Exit::Done)
}

/// An input of the loop.
enum TopInput {
    Read { snapshot: Box<TopSnapshot>, at: Instant },
    Lost(String),
    Pressed(ViewKey),
    Resized,
    Stopped,
}

/// The sources of inputs.
struct Sources {
    client: Client,
    interval: Duration,
    signals: TerminalSignals,
}

async fn show(mut screen: Screen, mut model: Model, sources: Sources) -> anyhow::Result<()> {
    let Sources { client, interval, signals } = sources;
    let (sender, mut news) = mpsc::channel(64);
    let keys = sender.clone();
    std::thread::spawn(move || read_keys(&keys));
    tokio::spawn(signals.stop(sender.clone()));
    let reading = tokio::spawn(read_on(client, interval, sender));
    let mut read_at = Instant::now();
    loop {
        screen.show(|canvas| view::draw(&model, canvas))?;
        match news.recv().await {
            Some(TopInput::Read { snapshot, at }) => {
                if !model.is_paused {
                    model.take(*snapshot, at.duration_since(read_at));
                    read_at = at;
                }
            }
            Some(TopInput::Lost(reason)) => model.lose(reason),
            Some(TopInput::Pressed(key)) => {
                let (columns, rows) = (model.pane.sorts().len(), rows::rows(&model, model.pane).len());
                if model.press(key, columns, rows) == AfterKey::Leave {
                    break;
                }
            }
            Some(TopInput::Resized) => {}
            Some(TopInput::Stopped) | None => break,
        }
    }
    reading.abort();
    Ok(())
}

/// Reads periodically, also after the server was unavailable: its version may have changed by then.
async fn read_on(client: Client, interval: Duration, sender: mpsc::Sender<TopInput>) {
    loop {
        tokio::time::sleep(interval).await;
        let news = match tokio::time::timeout(READ_TIMEOUT, feed::read(&client)).await {
            Ok(Ok(snapshot)) => TopInput::Read { snapshot: Box::new(snapshot), at: Instant::now() },
            Ok(Err(error)) => TopInput::Lost(error.to_string()),
            Err(_) => TopInput::Lost(format!("no answer from {} within {READ_TIMEOUT:?}", client.server())),
        };
        if sender.send(news).await.is_err() {
            return;
        }
    }
}

/// Ends when the receiver or the terminal is gone.
fn read_keys(sender: &mpsc::Sender<TopInput>) {
    while !sender.is_closed() {
        let event = match event::poll(KEY_PAUSE) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let news = match event {
            Ok(Event::Key(pressed)) if pressed.kind == KeyEventKind::Press => {
                key(pressed.code, pressed.modifiers).map(TopInput::Pressed)
            }
            Ok(Event::Resize(..)) => Some(TopInput::Resized),
            Ok(_) => None,
            Err(_) => Some(TopInput::Stopped),
        };
        if news.is_some_and(|news| sender.blocking_send(news).is_err()) {
            return;
        }
    }
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Option<ViewKey> {
    Some(match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => ViewKey::Interrupt,
        KeyCode::Char(letter) => ViewKey::Letter(letter),
        KeyCode::Enter => ViewKey::Enter,
        KeyCode::Esc => ViewKey::Escape,
        KeyCode::Backspace => ViewKey::Backspace,
        KeyCode::Tab => ViewKey::Tab,
        KeyCode::BackTab => ViewKey::BackTab,
        KeyCode::Up => ViewKey::Up,
        KeyCode::Down => ViewKey::Down,
        _ => return None,
    })
}

/// Signals that stop the program must restore the terminal as well.
struct TerminalSignals {
    terminate: Signal,
    hang_up: Signal,
    interrupt: Signal,
}

impl TerminalSignals {
    fn listen() -> io::Result<TerminalSignals> {
        Ok(TerminalSignals {
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn stop(mut self, sender: mpsc::Sender<TopInput>) {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        let _ = sender.send(TopInput::Stopped).await;
    }
}
