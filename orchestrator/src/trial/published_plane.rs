//! The two addresses of an agent plane that this process serves at a public URL.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rolltap_proxy::PublicUrl;
use rolltap_proxy::api::BaseUrls;

/// An agent plane of this process. Agents elsewhere call it at its public URL, perhaps through a gateway with TLS. Programs
/// of this host call it directly.
#[derive(Clone, Debug)]
pub(crate) struct PublishedPlane {
    public: String,
    here: String,
}

impl PublishedPlane {
    /// `listen` is the address on which the plane listens.
    pub(crate) fn new(url: &PublicUrl, listen: SocketAddr) -> Self {
        let address = match listen.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        Self { public: url.to_string(), here: format!("http://{}", SocketAddr::new(address, listen.port())) }
    }

    /// Returns a trial's public URLs in the form in which programs of this host call them.
    pub(crate) fn here(&self, urls: &BaseUrls) -> BaseUrls {
        let here = |url: &str| match url.strip_prefix(&self.public) {
            Some(path) => format!("{}{path}", self.here),
            None => url.to_owned(),
        };
        BaseUrls { openai: here(&urls.openai), anthropic: here(&urls.anthropic), gemini: here(&urls.gemini) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_this_host_have_the_address_of_the_socket_and_no_prefix() {
        let base = "https://gateway.example/rolltap/t/KEY";
        let urls =
            BaseUrls { openai: format!("{base}/v1"), anthropic: base.to_owned(), gemini: base.to_owned() };
        let public: PublicUrl = "https://gateway.example/rolltap".parse().unwrap();
        for (listen, here) in [
            ("0.0.0.0:7070", "http://127.0.0.1:7070/t/KEY"),
            ("10.0.0.5:7070", "http://10.0.0.5:7070/t/KEY"),
            ("[::]:7070", "http://[::1]:7070/t/KEY"),
        ] {
            let found = PublishedPlane::new(&public, listen.parse().unwrap()).here(&urls);
            assert_eq!(found.openai, format!("{here}/v1"));
            assert_eq!((found.anthropic.as_str(), found.gemini.as_str()), (here, here));
        }
    }
}
