//! Network policies: Harbor's modes, and its rules for host names.

use std::net::IpAddr;

/// The network access of one phase of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NetworkPolicy {
    /// Every host.
    #[default]
    Public,
    /// Only the trial's model.
    NoNetwork,
    /// These hosts and the trial's model.
    Allowlist(AllowedHosts),
}

/// An invalid entry of `allowed_hosts`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no host name, no *.host.name, no IP address and no IP range like 192.0.2.0/24; URLs, ports and paths \
     cannot be given"
)]
pub struct InvalidHost(String);

/// Hosts that are allowed on any port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedHosts(Vec<AllowedHost>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum AllowedHost {
    /// A name in lower case, without a final dot.
    Name(String),
    /// Every name that ends in a dot and this name, but not the name itself.
    Below(String),
    /// Every address whose first `bits` bits are those of `first`.
    Range { first: IpAddr, bits: u8 },
}

impl AllowedHosts {
    /// Parses Harbor's `allowed_hosts`.
    ///
    /// # Errors
    /// The first invalid entry.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidHost> {
        let parse = |entry: &str| AllowedHost::parse(entry).ok_or_else(|| InvalidHost(entry.to_owned()));
        entries.into_iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// Whether this host name is allowed, whatever its addresses are.
    pub(crate) fn allow_name(&self, name: &str) -> bool {
        let name = normal(name);
        self.0.iter().any(|host| match host {
            AllowedHost::Name(allowed) => *allowed == name,
            // The dot excludes names that only end in the same letters, such as `badexample.com`.
            AllowedHost::Below(domain) => name.strip_suffix(domain).is_some_and(|host| host.ends_with('.')),
            AllowedHost::Range { .. } => false,
        })
    }

    /// Whether this address is allowed.
    pub(crate) fn allow_address(&self, address: IpAddr) -> bool {
        let within = |host: &AllowedHost| match host {
            AllowedHost::Range { first, bits } => shared_bits(*first, address) >= u32::from(*bits),
            AllowedHost::Name(_) | AllowedHost::Below(_) => false,
        };
        self.0.iter().any(within)
    }

    /// Whether there are addresses among the entries. If so, a name may also be allowed by the addresses that it
    /// resolves to.
    pub(crate) fn have_addresses(&self) -> bool {
        self.0.iter().any(|host| matches!(host, AllowedHost::Range { .. }))
    }
}

impl AllowedHost {
    fn parse(entry: &str) -> Option<Self> {
        let entry = normal(entry.trim());
        if let Some((first, bits)) = entry.split_once('/') {
            let (first, bits) = (first.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?);
            let width = if first.is_ipv4() { 32 } else { 128 };
            return (bits <= width && ends_in_zeros(first, bits)).then_some(Self::Range { first, bits });
        }
        if let Ok(first) = entry.parse::<IpAddr>() {
            return Some(Self::Range { first, bits: if first.is_ipv4() { 32 } else { 128 } });
        }
        let (name, below) = entry.strip_prefix("*.").map_or((entry.as_str(), false), |name| (name, true));
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        // A name that parses as an address was given with `*.` before it, which has no meaning.
        let is_name = name.split('.').all(is_label) && name.parse::<IpAddr>().is_err();
        let name = is_name.then(|| name.to_owned())?;
        Some(if below { Self::Below(name) } else { Self::Name(name) })
    }
}

fn normal(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Returns the number of leading bits that two addresses share. Returns 0 for an IPv4 and an IPv6 address, fewer than
/// any range requires.
fn shared_bits(one: IpAddr, other: IpAddr) -> u32 {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => 0,
    }
}

/// Whether all bits after the prefix are zero. A range with other bits is probably a typing error.
fn ends_in_zeros(first: IpAddr, bits: u8) -> bool {
    let zeros = match first {
        IpAddr::V4(first) => first.to_bits().trailing_zeros() + u32::from(bits) >= 32,
        IpAddr::V6(first) => first.to_bits().trailing_zeros() + u32::from(bits) >= 128,
    };
    // A range of 0 bits would match addresses of both kinds, since two kinds share 0 bits.
    zeros && bits > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(entries: &[&str]) -> AllowedHosts {
        AllowedHosts::parse(entries.iter().copied()).unwrap()
    }

    #[test]
    fn names_and_what_is_below_them_are_told_apart() {
        let hosts = hosts(&["Example.COM.", "*.pythonhosted.org"]);
        for allowed in ["example.com", "EXAMPLE.com.", "files.pythonhosted.org", "a.b.pythonhosted.org"] {
            assert!(hosts.allow_name(allowed), "{allowed}");
        }
        for refused in ["a.example.com", "pythonhosted.org", "evilpythonhosted.org", "com", "", "1.2.3.4"] {
            assert!(!hosts.allow_name(refused), "{refused}");
        }
    }

    #[test]
    fn addresses_and_ranges() {
        let hosts = hosts(&["192.0.2.7", "10.1.0.0/16", "2001:db8::/32"]);
        assert!(hosts.have_addresses());
        for allowed in ["192.0.2.7", "10.1.255.255", "2001:db8:1::1"] {
            assert!(hosts.allow_address(allowed.parse().unwrap()), "{allowed}");
        }
        for refused in ["192.0.2.8", "10.2.0.0", "2001:db9::1", "::1"] {
            assert!(!hosts.allow_address(refused.parse().unwrap()), "{refused}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused_by_name() {
        let wrong = [
            "",
            "https://example.com",
            "example.com:443",
            "example.com/x",
            "*",
            "*.",
            "a.*.b",
            "*.10.0.0.1",
            "10.0.0.1/8",
            "-x.com",
            "a b",
            "[::1]",
            "fe80::1%eth0",
            "0.0.0.0/0",
        ];
        for entry in wrong {
            let error = AllowedHosts::parse([entry]).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{entry:?} is no host name")), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(entry in "\\PC{0,40}", name in "[a-z0-9.*-]{0,20}") {
            if let Ok(hosts) = AllowedHosts::parse([entry.as_str()]) {
                hosts.allow_name(&name);
            }
            if let Ok(hosts) = AllowedHosts::parse([name.as_str()]) {
                proptest::prop_assert!(name.starts_with('*') || hosts.have_addresses() || hosts.allow_name(&name));
            }
        }
    }
}
