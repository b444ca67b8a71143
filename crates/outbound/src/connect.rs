//! Connections to the target of a call: resolves names, asks the guard about every address before connecting,
//! and does TLS. Addresses are checked here, where they are used, and not when the job is parsed: a name may
//! resolve to another address a moment later.

use crate::guard::{AddressGuard, RefusedAddress};
use futures_util::future::{Either, select};
use http_body_util::Full;
use hyper::Uri;
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::TokioTimer;
use punctual_core::limits;
use punctual_core::ports::{Clock, Host, Spawn, Task};
use rustls::ClientConfig;
use std::error::Error;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

pub type HttpClient = Client<Connector, Full<Bytes>>;
type BoxError = Box<dyn Error + Send + Sync>;
type Try<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// A client whose every connection is checked by the guard: it uses no proxy and follows no redirects.
pub fn client(guard: Arc<AddressGuard>, tls: ClientConfig, host: &Host) -> HttpClient {
    client_with(Arc::new(SystemNames), guard, tls, host)
}

fn client_with(
    names: Arc<dyn NameResolver>,
    guard: Arc<AddressGuard>,
    tls: ClientConfig,
    host: &Host,
) -> HttpClient {
    let connector = |resolver: Resolver| {
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone());
        builder.https_or_http().enable_http1().wrap_connector(tcp)
    };
    let connector = Connector {
        guarded: connector(Resolver { guard: Some(guard.clone()), names: names.clone() }),
        trusted: connector(Resolver { guard: None, names }),
        guard,
        clock: host.clock.clone(),
    };
    Client::builder(Spawner(host.spawn.clone()))
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(limits::HTTP_IDLE_MAX)
        .pool_max_idle_per_host(limits::HTTP_IDLE_PER_HOST_MAX)
        .http1_max_buf_size(limits::HTTP_HEAD_BYTES_MAX)
        .build(connector)
}

/// Connects to addresses that the guard permits, and to any address of a host that the operator has allowed.
#[derive(Clone)]
pub struct Connector {
    guard: Arc<AddressGuard>,
    guarded: HttpsConnector<HttpConnector<Resolver>>,
    trusted: HttpsConnector<HttpConnector<Resolver>>,
    clock: Arc<dyn Clock>,
}

/// Name resolution, connecting and TLS together took too long.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {} seconds", .0.as_secs())]
struct NoConnection(Duration);

impl Connector {
    /// The connector for a host. A literal address never reaches the resolver, so it is checked here.
    fn way_to(&self, uri: &Uri) -> Result<HttpsConnector<HttpConnector<Resolver>>, RefusedAddress> {
        let host = uri.host().unwrap_or_default();
        let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        if self.guard.allows_host(host, uri.port_u16().unwrap_or(default_port)) {
            return Ok(self.trusted.clone());
        }
        if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            self.guard.check(address)?;
        }
        Ok(self.guarded.clone())
    }
}

impl Service<Uri> for Connector {
    type Response = <HttpsConnector<HttpConnector<Resolver>> as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = Try<Self::Response>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let way = self.way_to(&uri);
        let timeout = self.clock.sleep(limits::HTTP_CONNECT_TIMEOUT);
        Box::pin(async move {
            match select(pin!(way?.call(uri)), timeout).await {
                Either::Left((connected, _)) => connected,
                Either::Right(_) => Err(NoConnection(limits::HTTP_CONNECT_TIMEOUT).into()),
            }
        })
    }
}

/// Finds the addresses of names.
trait NameResolver: Send + Sync {
    fn resolve(&self, name: Name) -> Try<Vec<SocketAddr>>;
}

/// The system's resolver.
struct SystemNames;

impl NameResolver for SystemNames {
    fn resolve(&self, name: Name) -> Try<Vec<SocketAddr>> {
        let resolved = GaiResolver::new().call(name);
        Box::pin(async move { Ok(resolved.await?.collect()) })
    }
}

/// A resolver with its answers filtered by the guard. Each connection asks once, and connects to the addresses of
/// that answer.
#[derive(Clone)]
pub struct Resolver {
    guard: Option<Arc<AddressGuard>>,
    names: Arc<dyn NameResolver>,
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Try<Self::Response>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (guard, resolved) = (self.guard.clone(), self.names.resolve(name));
        Box::pin(async move {
            let resolved = resolved.await?;
            Ok(match guard {
                Some(guard) => passed(&guard, resolved)?.into_iter(),
                None => resolved.into_iter(),
            })
        })
    }
}

/// The addresses that the guard permits; an error if there were some and none is left.
pub(crate) fn passed(
    guard: &AddressGuard,
    resolved: Vec<SocketAddr>,
) -> Result<Vec<SocketAddr>, RefusedAddress> {
    let mut refused = None;
    let mut passed = resolved;
    passed.retain(|address| {
        guard.check(address.ip()).map_err(|refusal| refused.get_or_insert(refusal).address).is_ok()
    });
    match refused {
        Some(refused) if passed.is_empty() => Err(refused),
        _ => Ok(passed),
    }
}

/// Runs connections through the port.
#[derive(Clone)]
struct Spawner(Arc<dyn Spawn>);

impl hyper::rt::Executor<Task> for Spawner {
    fn execute(&self, connection: Task) {
        self.0.spawn(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ports::Random;
    use punctual_core::time::{Monotonic, Timestamp};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn resolved(addresses: &[&str]) -> Vec<SocketAddr> {
        addresses.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 0)).collect()
    }

    #[test]
    fn only_public_addresses_of_a_name_are_connected_to() {
        let guard = AddressGuard::default();
        let mixed = resolved(&["10.0.0.1", "1.1.1.1", "::1"]);
        assert_eq!(passed(&guard, mixed), Ok(resolved(&["1.1.1.1"])));
        let refused = passed(&guard, resolved(&["10.0.0.1", "::1"])).unwrap_err();
        assert_eq!(refused.address, "10.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(passed(&guard, vec![]), Ok(vec![]));
    }

    /// Answers with one address after the other.
    struct Rebinding(Mutex<Vec<IpAddr>>);

    impl NameResolver for Rebinding {
        fn resolve(&self, _name: Name) -> Try<Vec<SocketAddr>> {
            let next = self.0.lock().unwrap().pop().expect("no further lookup");
            Box::pin(async move { Ok(vec![SocketAddr::new(next, 0)]) })
        }
    }

    struct Machine;

    impl Clock for Machine {
        fn wall(&self) -> Timestamp {
            Timestamp::EPOCH
        }

        fn monotonic(&self) -> Monotonic {
            Monotonic::from_micros(0)
        }

        fn sleep(&self, _duration: Duration) -> Task {
            Box::pin(std::future::pending())
        }
    }

    impl Random for Machine {
        fn next_u64(&self) -> u64 {
            0
        }
    }

    impl Spawn for Machine {
        fn spawn(&self, task: Task) {
            tokio::spawn(task);
        }
    }

    /// Answers each connection once, and counts them.
    async fn listen(address: SocketAddr, connections: Arc<AtomicUsize>) -> SocketAddr {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let answer = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn a_name_that_moves_to_this_machine_after_the_check_is_refused() {
        // 127.0.0.2 stands for a public address: only it passes the guard.
        let (public, private): (IpAddr, IpAddr) =
            ("127.0.0.2".parse().unwrap(), "127.0.0.1".parse().unwrap());
        let [at_public, at_private] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let port = listen(SocketAddr::new(public, 0), at_public.clone()).await.port();
        listen(SocketAddr::new(private, port), at_private.clone()).await;
        let names = Arc::new(Rebinding(Mutex::new(vec![private, public])));
        let guard = Arc::new(AddressGuard::new(vec!["127.0.0.2/32".parse().unwrap()]));
        let machine = Arc::new(Machine);
        let host = Host {
            clock: machine.clone(),
            calendar: machine.clone(),
            random: machine.clone(),
            spawn: machine,
        };
        let client = client_with(names.clone(), guard, crate::tls_config(b"").unwrap(), &host);
        let url: Uri = format!("http://rebinding.example:{port}/").parse().unwrap();

        let answer = client.get(url.clone()).await.unwrap();
        assert_eq!(answer.status(), 204);
        let reached = || (at_public.load(Ordering::SeqCst), at_private.load(Ordering::SeqCst));
        assert_eq!(reached(), (1, 0), "the connection goes to the address that was checked");
        assert_eq!(names.0.lock().unwrap().len(), 1, "the name is resolved once per connection");

        let refused = client.get(url).await.unwrap_err();
        let mut error: Option<&dyn Error> = Some(&refused);
        let mut chain = vec![];
        while let Some(cause) = error {
            chain.push(cause.to_string());
            error = cause.source();
        }
        assert!(chain.iter().any(|cause| cause.starts_with("the address 127.0.0.1 is")), "{chain:?}");
        assert_eq!(reached(), (1, 0));
    }
}
