//! Unmodified agents in containers call their model through rolltap's own TLS with a private authority.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use rolltap_testing::TestAuthority;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::image::docker;
use crate::installed_agents::{CLAUDE_CODE, CODEX, HELLO, Part, assert_solved_and_captured};

/// Returns the address of this machine in the network of containers.
pub(crate) fn address_for_containers() -> IpAddr {
    let config = docker(&["network", "inspect", "bridge", "--format", "{{json (index .IPAM.Config 0)}}"]);
    let config: Value = serde_json::from_str(&config).unwrap();
    if let Some(gateway) = config["Gateway"].as_str() {
        return gateway.parse().unwrap();
    }
    // Docker names no gateway before its first restart, and takes the first address of the subnet.
    let (subnet, _) = config["Subnet"].as_str().unwrap().split_once('/').unwrap();
    let first: Ipv4Addr = subnet.parse().unwrap();
    Ipv4Addr::from_bits(first.to_bits() + 1).into()
}

/// Writes a job file whose containers have the certificate of an authority at `/authority.pem`.
pub(crate) fn job_with(authority: &Path, job: &Path) {
    let mount = json!({"type": "bind", "source": authority, "target": "/authority.pem", "read_only": true});
    std::fs::write(job, json!({"environment": {"mounts": [mount]}}).to_string()).unwrap();
}

/// Runs a job whose agent plane has TLS. The agent finds the authority by this variable.
async fn works_by_tls(agent: Part, name: &str, variable: &str, more: &[&str]) {
    let (files, authority, host) =
        (TempDir::new().unwrap(), TestAuthority::default(), address_for_containers());
    let free = std::net::TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().port();
    let listen = SocketAddr::new(host, free);
    let [certificate, key] = authority.certificate(&host.to_string()).files();
    let of_authority = authority.file();
    let job = files.path().join("job.json");
    job_with(of_authority.path(), &job);
    let (environment, url) = (format!("{variable}=/authority.pem"), format!("https://{listen}"));
    let (job, listen) = (job.to_str().unwrap(), listen.to_string());
    let [certificate, key] = [&certificate, &key].map(|file| file.path().to_str().unwrap());
    let arguments = [
        ["-c", job],
        ["--ae", &environment],
        ["--listen", &listen],
        ["--public-url", &url],
        ["--tls-cert", certificate],
        ["--tls-key", key],
    ];
    let (job, said) = agent.play(name, HELLO, &[&arguments.concat(), more].concat()).await;
    assert_solved_and_captured(&job, &said);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker and npm: run ./scripts/test"]
async fn claude_code_in_a_container_trusts_a_private_authority() {
    works_by_tls(CLAUDE_CODE, "own-tls-claude", "NODE_EXTRA_CA_CERTS", &["--ak", "max_turns=5"]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker and npm: run ./scripts/test"]
async fn codex_in_a_container_trusts_a_private_authority() {
    works_by_tls(CODEX, "own-tls-codex", "SSL_CERT_FILE", &[]).await;
}
