//! nginx, HAProxy and Caddy with the files of `deploy/`, on ports and in folders of their own.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rolltap_testing::{TestAuthority, eventually, free_port};
use tempfile::TempDir;

use super::client::Client;

/// The host in the files of `deploy/`.
const HOST: &str = "gateway.example";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    Haproxy,
    Caddy,
}

pub(crate) const ALL: [Kind; 3] = [Kind::Nginx, Kind::Haproxy, Kind::Caddy];

/// A gateway that does not run yet. Its port is known, so that the proxy behind it can have its public URL.
pub(crate) struct Planned {
    kind: Kind,
    /// The host by which agents call the gateway.
    host: String,
    port: u16,
    /// Replacements in the committed file, beside those of [`Kind::replacements`].
    changes: Vec<(&'static str, String)>,
}

/// A running gateway. It ends when it is dropped.
pub(crate) struct Gateway {
    pub(crate) kind: Kind,
    process: Child,
    dir: TempDir,
    pub(crate) client: Client,
}

impl Kind {
    /// Plans a gateway on loopback, with the host of the committed files.
    pub(crate) fn planned(self) -> Planned {
        Planned { kind: self, host: HOST.to_owned(), port: free_port(), changes: Vec::new() }
    }

    /// Plans a gateway at an address of this machine that containers reach.
    pub(crate) fn planned_at(self, address: IpAddr) -> Planned {
        Planned { host: address.to_string(), ..self.planned() }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Caddy => "caddy",
        }
    }

    fn committed(self) -> &'static str {
        match self {
            Self::Nginx => include_str!("../../../deploy/nginx/rolltap.conf"),
            Self::Haproxy => include_str!("../../../deploy/haproxy/rolltap.cfg"),
            Self::Caddy => include_str!("../../../deploy/caddy/Caddyfile"),
        }
    }

    /// Returns the values that a user replaces, as the heads of the files list them, and the port.
    fn replacements(
        self,
        listen: SocketAddr,
        dir: &Path,
        agent_plane: SocketAddr,
    ) -> Vec<(&'static str, String)> {
        let file = |name: &str| dir.join(name).display().to_string();
        let address = ("127.0.0.1:7070", agent_plane.to_string());
        match self {
            Self::Nginx => vec![
                address,
                ("listen 443 ", format!("listen {listen} ")),
                ("/etc/ssl/rolltap/fullchain.pem", file("certificate.pem")),
                ("/etc/ssl/rolltap/key.pem", file("key.pem")),
                ("/var/log/nginx/rolltap.log", file("access.log")),
            ],
            Self::Haproxy => vec![
                address,
                ("bind :443 ", format!("bind {listen} ")),
                ("/etc/haproxy/rolltap.pem", file("both.pem")),
            ],
            Self::Caddy => vec![
                address,
                ("/etc/caddy/rolltap/fullchain.pem", file("certificate.pem")),
                ("/etc/caddy/rolltap/key.pem", file("key.pem")),
            ],
        }
    }

    /// Returns the name and the text of the file that the distribution has around the committed one.
    fn surroundings(self, port: u16, dir: &Path) -> (&'static str, String) {
        let dir = dir.display();
        match self {
            Self::Nginx => (
                "nginx.conf",
                format!(
                    "daemon off;\npid {dir}/pid;\nworker_processes 1;\nerror_log {dir}/error.log info;\nevents {{}}\n\
                     http {{\nclient_body_temp_path {dir}/body;\nproxy_temp_path {dir}/proxy;\n\
                     fastcgi_temp_path {dir}/fastcgi;\nuwsgi_temp_path {dir}/uwsgi;\nscgi_temp_path {dir}/scgi;\n\
                     include {dir}/committed;\n}}\n"
                ),
            ),
            Self::Haproxy => {
                ("haproxy.cfg", "global\n    maxconn 1000\n    log stdout format raw local0\n".to_owned())
            }
            Self::Caddy => (
                "Caddyfile",
                format!(
                    "{{\n\tadmin off\n\tauto_https disable_redirects\n\thttps_port {port}\n\
                     \tdefault_bind 127.0.0.1\n}}\nimport {dir}/committed\n"
                ),
            ),
        }
    }

    fn command(self, dir: &Path) -> Command {
        let mut command = Command::new(program(self.name()));
        command.current_dir(dir);
        match self {
            Self::Nginx => {
                command.args(["-e", "error.log", "-c"]).arg(dir.join("nginx.conf")).arg("-p").arg(dir)
            }
            Self::Haproxy => command.args(["-db", "-f", "haproxy.cfg", "-f", "committed"]),
            Self::Caddy => {
                command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]);
                // Caddy stores its state in these directories.
                command.env("HOME", dir).env("XDG_DATA_HOME", dir).env("XDG_CONFIG_HOME", dir)
            }
        };
        command
    }
}

impl Planned {
    /// Replaces a text of the committed file.
    pub(crate) fn with(mut self, committed: &'static str, replacement: &str) -> Self {
        self.changes.push((committed, replacement.to_owned()));
        self
    }

    /// Returns the public URL of the agent plane. The committed files use the port of https, which needs no number.
    pub(crate) fn public_url(&self) -> String {
        format!("https://{}:{}/rolltap", self.host, self.port)
    }

    /// Starts the gateway in front of this agent plane.
    pub(crate) async fn start(self, agent_plane: SocketAddr) -> Gateway {
        let Self { kind, host, port, changes } = self;
        let dir = TempDir::new().unwrap();
        let authority = TestAuthority::default();
        let listen = SocketAddr::new(host.parse().unwrap_or(IpAddr::from(Ipv4Addr::LOCALHOST)), port);
        write_certificates(&authority, &host, dir.path());
        let mut text = kind.committed().to_owned();
        for (committed, replacement) in
            kind.replacements(listen, dir.path(), agent_plane).into_iter().chain(changes)
        {
            assert!(text.contains(committed), "{kind:?}: {committed:?} is not in the committed file");
            text = text.replace(committed, &replacement);
        }
        fs::write(dir.path().join("committed"), text).unwrap();
        let (name, surroundings) = kind.surroundings(port, dir.path());
        fs::write(dir.path().join(name), surroundings).unwrap();
        let output = File::create(dir.path().join("output")).unwrap();
        let process = kind
            .command(dir.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let client = Client::new(listen, host, &authority);
        let mut gateway = Gateway { kind, process, dir, client };
        gateway.answers().await;
        gateway
    }
}

impl Gateway {
    async fn answers(&mut self) {
        eventually("the gateway answers", async || {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "{:?} ended: {}", self.kind, self.output());
            self.client.connect().await.is_ok()
        })
        .await;
    }

    /// Returns the file with the certificate of the gateway's authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.dir.path().join("authority.pem")
    }

    /// Returns everything that the gateway printed.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(self.dir.path().join("output")).unwrap_or_default()
    }

    /// Returns the log of requests, or `None` if the committed file has none.
    pub(crate) fn access_log(&self) -> Option<String> {
        match self.kind {
            Kind::Nginx => fs::read_to_string(self.dir.path().join("access.log")).ok(),
            Kind::Haproxy => Some(self.output()),
            Kind::Caddy => None,
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // nginx ends its workers at SIGTERM, but not at SIGKILL.
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

/// Writes the certificate and its key, separately as nginx and Caddy read them, and together as HAProxy does.
fn write_certificates(authority: &TestAuthority, host: &str, dir: &Path) {
    let [certificate, key] = authority.certificate(host).pem();
    fs::write(dir.join("both.pem"), format!("{certificate}{key}")).unwrap();
    fs::write(dir.join("certificate.pem"), certificate).unwrap();
    fs::write(dir.join("key.pem"), key).unwrap();
    fs::write(dir.join("authority.pem"), authority.pem()).unwrap();
}

/// Returns the path of a program. Debian's servers are in directories that an ordinary user's PATH lacks.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from));
    let mut found = directories.map(|directory| directory.join(name)).filter(|program| program.is_file());
    found.next().unwrap_or_else(|| panic!("{name} is not installed: run ./scripts/test"))
}
