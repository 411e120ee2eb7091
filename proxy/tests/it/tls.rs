//! TLS on both planes and to upstreams.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use reqwest::{Client, StatusCode};
use rolltap_proxy::api::TrialOpened;
use rolltap_proxy::{CertificateFiles, PlaneTls, PoolSettings, Settings, UpstreamTls};
use rolltap_testing::{TestAuthority, TestCertificate, client_trusting, eventually, http_client};
use rustls::ServerConfig;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::harness::{Stage, request, settings, simulator};

const HOST: &str = "127.0.0.1";

/// Writes a certificate and its key to files of a directory.
fn write(dir: &Path, certificate: &TestCertificate) {
    let [certificate, key] = certificate.pem();
    std::fs::write(dir.join("tls.crt"), certificate).unwrap();
    std::fs::write(dir.join("tls.key"), key).unwrap();
}

fn plane_tls(dir: &Path) -> PlaneTls {
    let own = CertificateFiles { certificate: dir.join("tls.crt"), key: dir.join("tls.key") };
    PlaneTls { own, client_authorities: None }
}

/// Starts a proxy whose planes have the certificate in `dir`.
async fn stage(dir: &Path, authority: &TestAuthority, admin_tls: PlaneTls) -> Stage {
    let (upstream, data) = (simulator(None).await, TempDir::new().unwrap());
    let url = format!("http://{}", upstream.addr());
    let settings =
        Settings { agent_tls: Some(plane_tls(dir)), admin_tls: Some(admin_tls), ..settings(&url, &data) };
    let proxy = rolltap_proxy::start(settings).await.unwrap();
    Stage { upstream, proxy, data, http: client_trusting(authority.der(), None) }
}

async fn open(stage: &Stage, client: &Client) -> TrialOpened {
    let url = format!("https://{}/v1/trials", stage.proxy.admin_addr());
    let opened = client.post(url).json(&json!({"task_id": "org/task"})).send().await.unwrap();
    assert_eq!(opened.status(), StatusCode::CREATED);
    opened.json().await.unwrap()
}

#[tokio::test]
async fn both_planes_have_tls_and_agents_get_a_url_with_https() {
    let (authority, dir) = (TestAuthority::default(), TempDir::new().unwrap());
    write(dir.path(), &authority.certificate(HOST));
    let stage = stage(dir.path(), &authority, plane_tls(dir.path())).await;
    let trial = open(&stage, &stage.http).await;
    assert!(trial.base_urls.openai.starts_with("https://"), "{}", trial.base_urls.openai);
    let whole: Value = stage.chat(&trial, &request(json!({}))).await.json().await.unwrap();
    assert_eq!(whole["object"], "chat.completion");
    let streamed = stage.chat(&trial, &request(json!({"stream": true}))).await.text().await.unwrap();
    assert!(streamed.ends_with("data: [DONE]\n\n"), "{streamed}");

    // A client without TLS learns which scheme to use.
    for url in [stage.agent("/v1/models"), stage.admin("/v1/trials")] {
        let refused = http_client().get(url).send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        let error: Value = refused.json().await.unwrap();
        assert!(error["error"]["message"].as_str().unwrap().contains("https://"), "{error}");
    }
}

#[tokio::test]
async fn a_changed_certificate_serves_new_connections_once_its_key_fits() {
    let (before, after, dir) = (TestAuthority::default(), TestAuthority::default(), TempDir::new().unwrap());
    write(dir.path(), &before.certificate(HOST));
    let stage = stage(dir.path(), &before, plane_tls(dir.path())).await;
    let url = format!("https://{}/v1/models", stage.proxy.agent_addrs()[0]);
    // Each client opens one new connection.
    let trusts = async |authority: &TestAuthority| {
        client_trusting(authority.der(), None).get(&url).send().await.is_ok()
    };
    assert!(trusts(&before).await && !trusts(&after).await);

    let next = after.certificate(HOST);
    let [certificate, key] = next.pem();
    std::fs::write(dir.path().join("tls.crt"), certificate).unwrap();
    // The files are examined every two seconds.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!(trusts(&before).await, "half of a change changes nothing");
    std::fs::write(dir.path().join("tls.key"), key).unwrap();
    eventually("the new certificate serves", async || trusts(&after).await).await;
    assert!(!trusts(&before).await);
}

#[tokio::test]
async fn the_admin_plane_can_require_certificates_of_clients() {
    let (authority, dir) = (TestAuthority::default(), TempDir::new().unwrap());
    write(dir.path(), &authority.certificate(HOST));
    let clients = TestAuthority::default();
    let file = clients.file();
    let admin = PlaneTls { client_authorities: Some(file.path().to_owned()), ..plane_tls(dir.path()) };
    let stage = stage(dir.path(), &authority, admin).await;
    let url = format!("https://{}/v1/trials", stage.proxy.admin_addr());
    assert!(stage.http.get(&url).send().await.is_err(), "a client without a certificate");
    let stranger = TestAuthority::default().certificate("stranger").der();
    let stranger = client_trusting(authority.der(), Some(stranger));
    assert!(stranger.get(&url).send().await.is_err(), "a client with a certificate of another authority");

    let known = client_trusting(authority.der(), Some(clients.certificate("trainer").der()));
    let trial = open(&stage, &known).await;
    // Agents have keys, and need no certificate.
    assert_eq!(stage.chat(&trial, &request(json!({}))).await.status(), StatusCode::OK);
    let metrics = format!("https://{}/metrics", stage.proxy.admin_addr());
    let metrics = known.get(metrics).send().await.unwrap().text().await.unwrap();
    let failed = "rolltap_tls_handshakes_failed_total{plane=\"admin\"} 2";
    assert!(metrics.lines().any(|line| line == failed), "{metrics}");
}

/// Serves TLS in front of a server. Returns the URL.
pub(crate) async fn gateway(upstream: SocketAddr, certificate: &TestCertificate) -> String {
    let (certificate, key) = certificate.der();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key).unwrap()));
    let listener = TcpListener::bind((HOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut client = acceptor.accept(client).await?;
                copy_bidirectional(&mut client, &mut TcpStream::connect(upstream).await?).await
            });
        }
    });
    format!("https://{address}/v1")
}

#[tokio::test]
async fn calls_go_to_an_upstream_with_a_private_authority() {
    let (authority, data) = (TestAuthority::default(), TempDir::new().unwrap());
    let upstream = simulator(None).await;
    let url = gateway(upstream.addr(), &authority.certificate(HOST)).await;
    let file = authority.file();
    let tls = UpstreamTls { authorities: vec![file.path().to_owned()], identity: None };
    let settings =
        Settings { pool: PoolSettings { tls, ..PoolSettings::default() }, ..settings(&url, &data) };
    let proxy = rolltap_proxy::start(settings).await.unwrap();
    let stage = Stage { upstream, proxy, data, http: http_client() };
    let trial = stage.open(json!({})).await;
    let streamed = stage.chat(&trial, &request(json!({"stream": true}))).await.text().await.unwrap();
    assert!(streamed.ends_with("data: [DONE]\n\n"), "{streamed}");
    stage.seal(&trial).await;
    let calls = stage.calls(&trial).await;
    assert_eq!(calls.len(), 1);
    assert!(calls[0].flaws.is_empty() && !calls[0].prompt_token_ids.is_empty(), "{calls:?}");
}

#[tokio::test]
async fn an_untrusted_upstream_is_an_error_with_its_remedy() {
    let (authority, data) = (TestAuthority::default(), TempDir::new().unwrap());
    let upstream = simulator(None).await;
    let url = gateway(upstream.addr(), &authority.certificate(HOST)).await;
    let other = TestAuthority::default().file();
    let tls = UpstreamTls { authorities: vec![other.path().to_owned()], identity: None };
    let settings =
        Settings { pool: PoolSettings { tls, ..PoolSettings::default() }, ..settings(&url, &data) };
    let proxy = rolltap_proxy::start(settings).await.unwrap();
    let stage = Stage { upstream, proxy, data, http: http_client() };
    let trial = stage.open(json!({})).await;
    let answer = stage.chat(&trial, &request(json!({}))).await;
    assert!(answer.status().is_server_error(), "{}", answer.status());
    stage.seal(&trial).await;
    let calls = format!("{:?}", stage.calls(&trial).await);
    assert!(calls.contains("--upstream-ca"), "{calls}");
}
