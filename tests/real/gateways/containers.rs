//! An unmodified agent in a container calls its model through a gateway with TLS and a private authority.

use std::net::SocketAddr;

use rolltap_testing::free_port;
use tempfile::TempDir;

use super::gateway::Kind;
use crate::installed_agents::{CLAUDE_CODE, HELLO, assert_solved_and_captured};
use crate::own_tls::{address_for_containers, job_with};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nginx, Docker and npm: run ./scripts/test"]
async fn an_agent_in_a_container_works_behind_a_gateway() {
    let planned = Kind::Nginx.planned_at(address_for_containers());
    let public_url = planned.public_url();
    let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let gateway = planned.start(listen).await;
    let files = TempDir::new().unwrap();
    let job = files.path().join("job.json");
    job_with(&gateway.authority(), &job);
    let arguments = [
        "-c",
        job.to_str().unwrap(),
        "--ak",
        "max_turns=5",
        "--ae",
        "NODE_EXTRA_CA_CERTS=/authority.pem",
        "--listen",
        &listen.to_string(),
        "--public-url",
        &public_url,
    ];
    let (job, said) = CLAUDE_CODE.play("agents-gateway", HELLO, &arguments).await;
    assert_solved_and_captured(&job, &said);
    let log = gateway.access_log().unwrap();
    assert!(log.contains("\"POST /rolltap/t/KEY/v1/messages\" 200"), "{log}");
}
