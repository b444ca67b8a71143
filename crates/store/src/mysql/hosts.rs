//! The servers that one URL names: nodes of one cluster, any of which can be used. A process uses the first one that
//! answers for as long as it does, so that its connections see each other's locks; then it switches to the next one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A value for each host, and which of them is in use. Copies share the latter.
#[derive(Clone)]
pub(crate) struct Hosts<T> {
    all: Arc<[T]>,
    current: Arc<AtomicUsize>,
}

impl<T> fmt::Debug for Hosts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("count", &self.all.len()).finish_non_exhaustive()
    }
}

impl<T> Hosts<T> {
    /// In the order in which to try them; at least one.
    pub fn new(all: Vec<T>) -> Self {
        Hosts { all: all.into(), current: Arc::default() }
    }

    pub fn all(&self) -> &[T] {
        &self.all
    }

    /// The one in use, and its index.
    pub fn current(&self) -> (usize, &T) {
        let place = self.current.load(Ordering::Relaxed) % self.all.len();
        (place, &self.all[place])
    }

    /// Switches to the next one, unless another caller has done so already.
    pub fn pass_on(&self, from: usize) {
        let next = (from + 1) % self.all.len();
        // A faster caller has switched already.
        let _ = self.current.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The same URL once for each of its hosts, which are separated by commas.
pub(crate) fn split(url: &str) -> Vec<String> {
    let Some((scheme, rest)) = url.split_once("://") else { return vec![url.to_owned()] };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (who, hosts) = match authority.rsplit_once('@') {
        Some((who, hosts)) => (format!("{who}@"), hosts),
        None => (String::new(), authority),
    };
    hosts.split(',').map(|host| format!("{scheme}://{who}{host}{tail}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_at_its_hosts_only() {
        let split = |url| split(url).join(" ");
        assert_eq!(split("mysql://u:a,b@h/d?x=1,2"), "mysql://u:a,b@h/d?x=1,2");
        assert_eq!(split("mysql://u@a:1,b:2/d?x=1"), "mysql://u@a:1/d?x=1 mysql://u@b:2/d?x=1");
        assert_eq!(split("mysql://a,b"), "mysql://a mysql://b");
    }

    #[test]
    fn several_callers_switch_from_a_host_once() {
        let hosts = Hosts::new(vec!['a', 'b', 'c']);
        let copy = hosts.clone();
        assert_eq!(hosts.current(), (0, &'a'));
        hosts.pass_on(0);
        copy.pass_on(0);
        assert_eq!((hosts.current(), copy.current()), ((1, &'b'), (1, &'b')));
        copy.pass_on(1);
        hosts.pass_on(2);
        assert_eq!(copy.current(), (0, &'a'), "and back to the first");
    }
}
