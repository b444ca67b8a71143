//! Servers that belong to one test, which may break them. A server that does not start, or fails a command,
//! fails the test with its own output.

use punctual_test_servers::Servers;

/// The servers of a service, named after it: `replica-primary`, `replica-standby`, `galera-1` and so on.
pub struct Private(Servers);

impl Private {
    /// Starts all servers of a service and waits until they are ready.
    pub fn start(service: &str) -> Self {
        Private(Servers::start(service).unwrap_or_else(|error| panic!("{error:#}")))
    }

    /// The URL of one server.
    pub fn url(&self, name: &str) -> &str {
        self.0.url(name).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// One URL for all servers, in order.
    pub fn url_of_all(&self) -> String {
        self.0.url_of_all()
    }

    /// Kills a server with all its processes, as a power failure does.
    pub fn kill(&mut self, name: &str) {
        self.0.kill(name).unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Starts a killed server again and waits until it accepts connections.
    pub fn start_again(&mut self, name: &str) {
        self.0.start_again(name).unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Runs a statement on a server, as its operator would, and returns the answer.
    pub fn sql(&mut self, name: &str, statement: &str) -> String {
        self.0.sql(name, statement).unwrap_or_else(|error| panic!("{error:#}"))
    }
}
