//! A command on its own terminal, by means of `script`: its output, and keys for it.

use crate::server::{BINARY, PATIENCE};
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Instant;

/// A running command with a terminal of 100 columns and 30 rows. Killed on drop.
pub struct Terminal {
    child: Child,
    output: mpsc::Receiver<Vec<u8>>,
    /// Everything that was drawn so far.
    pub drawn: String,
    /// The position up to which `waits_for` has searched.
    looked: usize,
    /// The pid of the command itself, not of the program that provides its terminal.
    pub pid: i32,
}

impl Terminal {
    pub fn start(arguments: &[&str]) -> Terminal {
        Terminal::start_with(&[], arguments)
    }

    /// The same with further environment variables.
    pub fn start_with(variables: &[(&str, &str)], arguments: &[&str]) -> Terminal {
        let words: Vec<String> =
            arguments.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        let line = format!("stty cols 100 rows 30; echo pid=$$.; exec '{BINARY}' {}", words.join(" "));
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm-256color")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`script` of util-linux gives commands a terminal");
        let mut stdout = child.stdout.take().expect("stdout is piped");
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut terminal = Terminal { child, output, drawn: String::new(), looked: 0, pid: 0 };
        terminal.waits_for("pid=");
        terminal.waits_for(".");
        let pid = terminal.drawn.split("pid=").nth(1).and_then(|rest| rest.split('.').next());
        terminal.pid = pid.and_then(|pid| pid.parse().ok()).expect("the shell tells its id");
        terminal
    }

    /// Waits until this is drawn, after what was waited for before.
    pub fn waits_for(&mut self, text: &str) {
        let start = Instant::now();
        loop {
            if let Some(place) = self.drawn[self.looked..].find(text) {
                self.looked += place + text.len();
                return;
            }
            let left = PATIENCE.saturating_sub(start.elapsed());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.drawn += &String::from_utf8_lossy(&bytes),
                Err(_) => panic!("{text:?} is never drawn: {:?}", self.drawn),
            }
        }
    }

    pub fn press(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().expect("stdin is piped");
        stdin.write_all(keys.as_bytes()).and_then(|()| stdin.flush()).expect("the terminal takes keys");
    }

    pub fn terminate(&self) {
        let pid = rustix::process::Pid::from_raw(self.pid).expect("the id of a process");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("the command still runs");
    }

    /// Waits until the command has ended; `drawn` is complete then.
    pub fn ended(&mut self) -> ExitStatus {
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.drawn += &String::from_utf8_lossy(&bytes);
        }
        self.child.wait().expect("the command has ended")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
