//! Decides which addresses a call may connect to. Jobs and channels are written by people who may not have the
//! server's network access: to its own machine, its private network, the cloud's metadata service. This
//! module owns the address classes and the operator's exceptions; it resolves and connects nothing.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use url::{Host, Url};

/// What the operator allows beyond the public internet.
#[derive(Debug, Default)]
pub struct AddressGuard {
    allowed: Vec<Allow>,
}

/// An address that a call must not connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the address {address} is {class}, and calls may only go to the public internet")]
pub struct RefusedAddress {
    pub address: IpAddr,
    class: &'static str,
}

impl AddressGuard {
    pub fn new(allowed: Vec<Allow>) -> Self {
        AddressGuard { allowed }
    }

    /// Whether the operator has allowed this host, so that it may resolve to any address.
    pub fn allows_host(&self, host: &str, port: u16) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        self.allowed.iter().any(|allowed| match &allowed.0 {
            AllowedKind::Host { name, port: only } => name == host && only.is_none_or(|only| only == port),
            AllowedKind::Network(_) => false,
        })
    }

    pub fn check(&self, address: IpAddr) -> Result<(), RefusedAddress> {
        let Some(class) = not_public(address) else { return Ok(()) };
        // To the system a mapped address is the IPv4 address itself. Other embeddings are translated by
        // unknown devices elsewhere, so the operator must allow them in their IPv6 form.
        let canonical = address.to_canonical();
        let is_allowed = self.allowed.iter().any(|allowed| match &allowed.0 {
            AllowedKind::Network(network) => network.contains(&address) || network.contains(&canonical),
            AllowedKind::Host { .. } => false,
        });
        if is_allowed { Ok(()) } else { Err(RefusedAddress { address: canonical, class }) }
    }
}

/// One exception: a network such as `10.0.0.0/8`, an address, or a host with or without a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow(AllowedKind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum AllowedKind {
    Network(IpNet),
    /// The host name as in a URL, and its port, unless all ports are allowed.
    Host {
        name: String,
        port: Option<u16>,
    },
}

/// The text is neither a network nor a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a network such as 10.0.0.0/8, an address, or a host with or without a port such as internal.example:8080"
)]
pub struct ParseAllowError;

impl FromStr for Allow {
    type Err = ParseAllowError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Allow(AllowedKind::Network(network.trunc())));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Allow(AllowedKind::Network(address.into())));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse().map_err(|_| ParseAllowError)?))
            }
            _ => (text, None),
        };
        if host.is_empty() || host.contains(['/', '\\', '?', '#', '@', '*']) {
            return Err(ParseAllowError);
        }
        // Parsed as a URL, so that both are normalised alike: lower case, IDNA, numbers as addresses.
        let url = Url::parse(&format!("http://{host}/")).map_err(|_| ParseAllowError)?;
        match (url.host(), url.host_str()) {
            (Some(Host::Ipv4(address)), _) if port.is_none() => {
                Ok(Allow(AllowedKind::Network(IpAddr::V4(address).into())))
            }
            (Some(Host::Ipv6(address)), _) if port.is_none() => {
                Ok(Allow(AllowedKind::Network(IpAddr::V6(address).into())))
            }
            (Some(_), Some(name)) => {
                let name = name.strip_suffix('.').unwrap_or(name).to_owned();
                Ok(Allow(AllowedKind::Host { name, port }))
            }
            _ => Err(ParseAllowError),
        }
    }
}

/// Why an address is not public; `None` if it is.
fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => not_public_v4(address),
        IpAddr::V6(address) => not_public_v6(address),
    }
}

/// Azure's platform service for its machines; its address looks public.
const AZURE_PLATFORM: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [0, ..] => Some("unspecified"),
        [127, ..] => Some("a loopback address"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some("private"),
        [169, 254, ..] => Some("link-local, which clouds use for their metadata"),
        [100, 64..=127, ..] => Some("carrier-grade NAT (100.64.0.0/10)"),
        [192, 0, 0, _] => Some("reserved for protocols"),
        [198, 18..=19, ..] => Some("reserved for benchmarks"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Some("reserved for documentation"),
        [255, 255, 255, 255] => Some("the broadcast address"),
        [224..=239, ..] => Some("a multicast address"),
        [240..=255, ..] => Some("reserved"),
        _ if address == AZURE_PLATFORM => Some("a cloud's metadata service"),
        _ => None,
    }
}

fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => return Some("unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => return Some("a loopback address"),
        [0xfc00..=0xfdff, ..] => return Some("private (unique local)"),
        [0xfe80..=0xfebf, ..] => return Some("link-local"),
        [0xfec0..=0xfeff, ..] => return Some("site-local"),
        [0xff00..=0xffff, ..] => return Some("a multicast address"),
        [0x64, 0xff9b, 1, ..] => return Some("a private translation to IPv4 (64:ff9b:1::/48)"),
        [0x2001, 0, ..] => return Some("a Teredo tunnel"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => return Some("reserved for documentation"),
        [0x2001, 2, 0, ..] => return Some("reserved for benchmarks"),
        [0x100, 0, 0, 0, ..] => return Some("discarded"),
        _ => {}
    }
    match (embedded_v4(address), address.segments()) {
        (Some(embedded), _) => not_public_v4(embedded),
        // Global unicast (2000::/3). Of the rest, such as 5f00::/16 for segment routing, nothing is public.
        (None, [0x2000..=0x3fff, ..]) => None,
        (None, _) => Some("reserved"),
    }
}

/// The IPv4 address at which a connection to this one ends, here or through a translator.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        // Mapped, compatible, translated (SIIT), NAT64.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        // 6to4.
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allowed: &[&str]) -> AddressGuard {
        AddressGuard::new(allowed.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Each class, with its first and last address and the addresses next to them.
    const V4_CLASSES: [(&str, &str, &[&str]); 14] = [
        ("0.0.0.0", "0.255.255.255", &["1.0.0.0"]),
        ("127.0.0.0", "127.255.255.255", &["126.255.255.255", "128.0.0.0"]),
        ("10.0.0.0", "10.255.255.255", &["9.255.255.255", "11.0.0.0"]),
        ("172.16.0.0", "172.31.255.255", &["172.15.255.255", "172.32.0.0"]),
        ("192.168.0.0", "192.168.255.255", &["192.167.255.255", "192.169.0.0"]),
        ("169.254.0.0", "169.254.255.255", &["169.253.255.255", "169.255.0.0"]),
        ("100.64.0.0", "100.127.255.255", &["100.63.255.255", "100.128.0.0"]),
        ("192.0.0.0", "192.0.0.255", &["191.255.255.255", "192.0.1.0"]),
        ("198.18.0.0", "198.19.255.255", &["198.17.255.255", "198.20.0.0"]),
        ("192.0.2.0", "192.0.2.255", &["192.0.1.255", "192.0.3.0"]),
        ("198.51.100.0", "203.0.113.255", &["198.51.99.255", "203.0.114.0"]),
        ("224.0.0.0", "239.255.255.255", &["223.255.255.255"]),
        ("240.0.0.0", "255.255.255.255", &[]),
        ("168.63.129.16", "168.63.129.16", &["168.63.129.15", "168.63.129.17"]),
    ];

    #[test]
    fn ipv4_addresses_off_the_public_internet_are_refused() {
        for (first, last, beside) in V4_CLASSES {
            for refused in [first, last] {
                assert!(guard(&[]).check(ip(refused)).is_err(), "{refused}");
            }
            for public in beside {
                assert_eq!(guard(&[]).check(ip(public)), Ok(()), "{public}");
            }
        }
        assert!(guard(&[]).check(ip("169.254.169.254")).is_err());
    }

    #[test]
    fn ipv6_addresses_off_the_public_internet_are_refused() {
        for (refused, public) in [
            ("::", "2606:4700::1111"),
            ("::1", "2a00:1450::1"),
            ("fc00::", "2000::1"),
            ("fdff:ffff::1", "2620:fe::fe"),
            ("fd00:ec2::254", "2001:3::1"),
            ("fe80::1", "2001:2:1::1"),
            ("febf::1", "2400::1"),
            ("fec0::1", "2800::1"),
            ("ff02::1", "2c00::1"),
            ("64:ff9b:1::808:808", "64:ff9b::808:808"),
            ("64:ff9b:2::1", "3ffe::1"),
            ("2001::1", "2001:1::1"),
            ("2001:db8::1", "2001:db9::1"),
            ("3fff::1", "3fff:1000::1"),
            ("100::1", "3fff:ffff::1"),
            ("2001:2::1", "2001:2:1::"),
            ("1fff:ffff::1", "2000::"),
            ("4000::1", "3fff:ffff:ffff::1"),
            ("5f00::1", "2600::1"),
        ] {
            assert!(guard(&[]).check(ip(refused)).is_err(), "{refused}");
            assert_eq!(guard(&[]).check(ip(public)), Ok(()), "{public}");
        }
    }

    #[test]
    fn an_ipv4_address_hides_in_no_ipv6_address() {
        let embeddings: [fn(u16, u16) -> [u16; 8]; 5] = [
            |high, low| [0, 0, 0, 0, 0, 0xffff, high, low],
            |high, low| [0, 0, 0, 0, 0, 0, high, low],
            |high, low| [0, 0, 0, 0, 0xffff, 0, high, low],
            |high, low| [0x64, 0xff9b, 0, 0, 0, 0, high, low],
            |high, low| [0x2002, high, low, 0, 0, 0, 0, 1],
        ];
        for embed in embeddings {
            let embedded = |text: &str| {
                let bits = u32::from(text.parse::<Ipv4Addr>().unwrap());
                IpAddr::from(embed((bits >> 16) as u16, bits as u16))
            };
            for (first, last, beside) in V4_CLASSES {
                for refused in [first, last] {
                    assert!(guard(&[]).check(embedded(refused)).is_err(), "{}", embedded(refused));
                }
                for public in beside {
                    assert_eq!(guard(&[]).check(embedded(public)), Ok(()), "{}", embedded(public));
                }
            }
        }
    }

    #[test]
    fn a_refusal_names_the_address_and_its_class() {
        let said = guard(&[]).check(ip("::ffff:127.0.0.1")).unwrap_err().to_string();
        assert!(said.contains("127.0.0.1 is a loopback address"), "{said}");
    }

    #[test]
    fn a_network_allows_what_lies_in_it() {
        let guard = guard(&["10.1.2.3/8", "127.0.0.1", "fd00::/8", "[::1]"]);
        for allowed in ["10.255.0.1", "127.0.0.1", "::ffff:127.0.0.1", "fd12::1", "::1"] {
            assert_eq!(guard.check(ip(allowed)), Ok(()), "{allowed}");
        }
        for refused in ["127.0.0.2", "192.168.0.1", "fc00::1", "64:ff9b::7f00:1", "2002:7f00:1::"] {
            assert!(guard.check(ip(refused)).is_err(), "{refused}");
        }
        assert!(!guard.allows_host("127.0.0.1", 80), "an address is checked as one");
    }

    #[test]
    fn a_host_is_allowed_by_name_and_port() {
        let guard = guard(&["Internal.Example:8080", "any.example.", "127.0.0.1:90", "[::1]:90"]);
        assert!(guard.allows_host("internal.example", 8080));
        assert!(guard.allows_host("internal.example.", 8080));
        assert!(guard.allows_host("any.example", 1));
        assert!(guard.allows_host("127.0.0.1", 90) && guard.allows_host("[::1]", 90));
        assert!(!guard.allows_host("internal.example", 80));
        assert!(!guard.allows_host("sub.any.example", 1));
        assert!(!guard.allows_host("127.0.0.1", 91));
        assert!(guard.check(ip("127.0.0.1")).is_err(), "a name is not a network");
    }

    #[test]
    fn what_is_neither_is_refused() {
        for bad in
            ["", "10.0.0.0/33", "http://a", "a:b", "a:70000", "*.example", "u@a", "a/b", "1.2.3.4.5/8", ":80"]
        {
            assert_eq!(bad.parse::<Allow>(), Err(ParseAllowError), "{bad}");
        }
    }
}
